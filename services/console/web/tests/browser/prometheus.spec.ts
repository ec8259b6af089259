// The panels of the cluster's page with a real Prometheus that scrapes the real server.
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect, test } from '@playwright/test'

import { freePort, ROOT, Server } from './server'
import { barriersOf, logIn, type Visit, visit } from './visit'

const PROGRAM = [join(ROOT, '.tools/prometheus/usr/bin/prometheus'), '/usr/bin/prometheus'].find((path) => existsSync(path))
const folder = mkdtempSync(join(tmpdir(), 'dressage-prometheus-'))
let prometheus: ChildProcess
let server: Server
let seen: Visit

test.skip(PROGRAM === undefined, 'prometheus is not installed: tools/system-packages prometheus')

test.beforeAll(async ({ browser }) => {
  test.setTimeout(300_000)
  const [metrics, port] = [await freePort(), await freePort()]
  const address = `http://127.0.0.1:${port}`
  const target = { job_name: 'orchestrator', static_configs: [{ targets: [`127.0.0.1:${metrics}`], labels: { namespace: 'lab' } }] }
  // JSON is YAML.
  writeFileSync(join(folder, 'prometheus.yaml'), JSON.stringify({ global: { scrape_interval: '1s' }, scrape_configs: [target] }))
  prometheus = spawn(PROGRAM!, [`--config.file=${folder}/prometheus.yaml`, `--storage.tsdb.path=${folder}/data`, `--web.listen-address=127.0.0.1:${port}`], { stdio: 'ignore' })
  server = await Server.start({ DRESSAGE_CONSOLE_PROMETHEUS_URL: address, DRESSAGE_CONSOLE_PROMETHEUS_SELECTOR: 'namespace="lab"' }, ['--metrics', `127.0.0.1:${metrics}`])
  const reward = { seeds: 1, stepsPerMember: '400000', maxStepsPerMember: '400000', earlyStop: false }
  await server.call('CreateSession', { sessionId: 'long-1', spec: { intent: 'hop forward', environment: 'environments/Hopper-v5', reward } })
  const value = async (expression: string) => {
    const answer = await fetch(`${address}/api/v1/query?${new URLSearchParams({ query: expression })}`).catch(() => null)
    return ((await answer?.json()) as { data?: { result: unknown[] } } | undefined)?.data?.result.length ?? 0
  }
  // A rate needs two scrapes; the speed is there once the training has reported.
  await expect.poll(() => value('rate(process_cpu_seconds_total[5m]) > 0 and on() dressage_training_steps_per_second > 0'), { timeout: 200_000, intervals: [1_000] }).toBeGreaterThan(0)
  seen = await visit(browser)
  await logIn(seen.page, server.url)
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
  prometheus?.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
})

test('the panels show what Prometheus has scraped', async () => {
  const { page } = seen
  await page.getByRole('link', { name: 'Cluster', exact: true }).click()
  await expect(page.getByRole('heading', { name: 'The last hour' })).toBeVisible()
  const value = async (title: RegExp) => {
    const chart = page.getByRole('img', { name: title })
    await expect(chart).toBeVisible()
    await chart.scrollIntoViewIfNeeded()
    await expect(chart.locator('canvas')).toBeVisible()
    return Number(/: (-?[\d.]+)([KM]?)[^:]*$/.exec((await chart.getAttribute('aria-label'))!)![1])
  }
  const memory = await value(/^Memory, GB over minutes.*orchestrator: /)
  expect(memory).toBeGreaterThan(0.02)
  expect(memory).toBeLessThan(8)
  expect(await value(/^Cores in use over minutes.*orchestrator: /)).toBeGreaterThan(0)
  expect(await value(/^Runs over minutes.*running/)).toBeGreaterThanOrEqual(0)
  expect(await value(/^Steps per second over minutes.*Hopper-v5/)).toBeGreaterThan(0)
  await expect(page.getByText('DRESSAGE_CONSOLE_PROMETHEUS_URL')).toBeHidden()
  expect(await barriersOf(page, 'panels')).toEqual([])
  expect(seen.problems).toEqual([])
})

test('a Prometheus that is gone is named, and the page stays', async () => {
  const { page } = seen
  const gone = new Promise((done) => prometheus.once('exit', done))
  prometheus.kill('SIGKILL')
  await gone
  await page.waitForTimeout(11_000) // as long as the console keeps an answer
  await page.reload()
  await expect(page.getByText('Prometheus does not answer as expected')).toBeVisible()
  await expect(page.getByRole('heading', { name: /^Pool local/ })).toBeVisible()
})
