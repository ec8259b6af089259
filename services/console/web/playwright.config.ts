import { defineConfig } from '@playwright/test'

export default defineConfig({
  testDir: 'tests/browser',
  // One server for all tests, which follow one session from its start to its deletion.
  workers: 1,
  fullyParallel: false,
  timeout: 180_000,
  expect: { timeout: 30_000 },
  reporter: [['list']],
  outputDir: '../../../build/console-tests',
  use: {
    launchOptions: { executablePath: process.env.DRESSAGE_CHROMIUM ?? '/usr/bin/chromium' },
    viewport: { width: 1360, height: 860 },
    permissions: ['clipboard-read', 'clipboard-write'],
    trace: 'off',
    actionTimeout: 20_000,
  },
})
