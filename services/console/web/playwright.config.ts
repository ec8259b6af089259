import { defineConfig } from '@playwright/test'

export default defineConfig({
  testDir: 'tests/browser',
  // One server for all tests, which follow one session from its start to its deletion.
  workers: 1,
  fullyParallel: false,
  // Deadlines of waits for a state, which end as soon as it is there: on two cores with a load of 50 a page takes 20 s.
  timeout: 300_000,
  expect: { timeout: 60_000 },
  reporter: [['list']],
  outputDir: '../../../build/console-tests',
  use: {
    launchOptions: { executablePath: process.env.DRESSAGE_CHROMIUM ?? '/usr/bin/chromium' },
    viewport: { width: 1360, height: 860 },
    permissions: ['clipboard-read', 'clipboard-write'],
    trace: 'off',
    actionTimeout: 60_000,
  },
})
