// What the page may cost: how soon it is there, how soon an event is shown, and how smoothly it scrolls. The figures are written
// as JSON. Tasks of the main thread are measured in processor time as well, which a busy machine does not stretch.
import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { type Browser, expect, type Page, test } from '@playwright/test'

import { ROOT, Server } from './server'
import { logIn, visit } from './visit'

const BUDGET = { firstPaintMs: 1_000, interactiveMs: 2_000, updateMs: 1_000, taskMs: 50, initialJavaScriptKb: 350 }
const REPEATS = 5
const METRICS = Array.from({ length: 25 }, (_, index) => `metric_${String(index).padStart(2, '0')}`)
const measured: Record<string, number> = {}
let server: Server

test.describe.configure({ mode: 'serial' })

test.beforeAll(async () => {
  test.setTimeout(400_000)
  server = await Server.start()
  await server.kill()
  execFileSync(join(ROOT, '.venv/bin/python'), [join(ROOT, 'tools/console_budgets.py'), server.folder], { timeout: 200_000, stdio: 'inherit' })
  await server.launch()
})

test.afterAll(async () => {
  await server?.stop()
  const text = JSON.stringify({ budget: BUDGET, measured }, null, 2)
  mkdirSync(join(ROOT, 'build'), { recursive: true })
  writeFileSync(join(ROOT, 'build/console-budgets.json'), `${text}\n`)
  console.log(text)
})

const median = (values: number[]) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)]!
const round = (value: number) => Math.round(value * 10) / 10

/** The longest task of the page's main thread while something is done: in time, and in processor time, both in ms. */
async function longestTask(browser: Browser, page: Page, what: () => Promise<void>): Promise<{ wall: number; processor: number }> {
  const file = join(ROOT, 'build/console-trace.json')
  mkdirSync(join(ROOT, 'build'), { recursive: true })
  const categories = ['toplevel', 'disabled-by-default-devtools.timeline', '__metadata']
  await browser.startTracing(page, { path: file, categories })
  await page.evaluate(() => performance.mark('begin'))
  await what()
  await browser.stopTracing()
  type Entry = { name: string; ph: string; pid: number; tid: number; dur?: number; tdur?: number; args?: { name?: string } }
  const { traceEvents } = JSON.parse(readFileSync(file, 'utf8')) as { traceEvents: Entry[] }
  const main = new Set(traceEvents.filter((entry) => entry.name === 'thread_name' && entry.args?.name === 'CrRendererMain').map((entry) => `${entry.pid}.${entry.tid}`))
  const tasks = traceEvents.filter((entry) => entry.ph === 'X' && entry.name.endsWith('RunTask') && main.has(`${entry.pid}.${entry.tid}`))
  expect(tasks.length).toBeGreaterThan(50)
  const most = (values: number[]) => round(Math.max(...values) / 1000)
  return { wall: most(tasks.map((task) => task.dur ?? 0)), processor: most(tasks.map((task) => task.tdur ?? task.dur ?? 0)) }
}

async function scroll(page: Page): Promise<void> {
  await page.mouse.move(600, 500)
  for (let step = 0; step < 60; step += 1) {
    await page.mouse.wheel(0, step < 40 ? 700 : -900)
    await page.waitForTimeout(40)
  }
}

test('is there within a second and usable within two', { tag: '@budgets' }, async ({ browser }) => {
  const paints: number[] = []
  const ready: number[] = []
  const processor: number[] = []
  for (let repeat = 0; repeat < REPEATS; repeat += 1) {
    const { page, context } = await visit(browser) // with nothing in its cache
    await context.request.post(`${server.base}login`, { data: { token: server.token } })
    const session = await context.newCDPSession(page)
    await session.send('Performance.enable', { timeDomain: 'threadTicks' })
    await page.goto(server.base)
    await page.waitForFunction(() => document.querySelector('[role=row] a') !== null)
    const { metrics } = await session.send('Performance.getMetrics')
    processor.push((metrics.find((metric) => metric.name === 'ThreadTime')?.value ?? Number.POSITIVE_INFINITY) * 1000)
    ready.push(await page.evaluate(() => performance.now()))
    paints.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? Number.POSITIVE_INFINITY))
    measured.initialJavaScriptKb = await page.evaluate(
      () => performance.getEntriesByType('resource').filter((entry) => entry.name.endsWith('.js')).reduce((sum, entry) => sum + (entry as PerformanceResourceTiming).encodedBodySize, 0) / 1000,
    )
    await context.close()
  }
  measured.initialJavaScriptKb = round(measured.initialJavaScriptKb ?? Number.POSITIVE_INFINITY)
  measured.firstPaintMs = round(median(paints))
  measured.interactiveMs = round(median(ready))
  measured.interactiveProcessorMs = round(median(processor))
})

test('shows an event within a second', { tag: '@budgets' }, async ({ browser }) => {
  const { page, context } = await visit(browser)
  const spec = { intent: 'hop forward', environment: 'environments/Hopper-v5', approveBeforeEvaluation: true, reward: { seeds: 1, stepsPerMember: '2048' } }
  await server.call('CreateSession', { spec, sessionId: 'updates' })
  await logIn(page, server.url)
  await page.goto(`${server.base}sessions/updates?tab=events`)
  await expect(page.getByText('Iteration 1 waits for your approval')).toBeVisible({ timeout: 120_000 })
  const times: number[] = []
  for (let repeat = 0; repeat < REPEATS; repeat += 1) {
    const note = `note number ${repeat}`
    const shown = page.waitForFunction((text) => document.querySelector('[role=log]')?.textContent?.includes(text) === true, note)
    const start = performance.now()
    await server.call('SteerSession', { name: 'sessions/updates', note })
    await shown
    times.push(performance.now() - start)
  }
  measured.updateMs = round(median(times))
  await context.close()
})

test('scrolls 1,000 sessions without a long task', { tag: '@budgets' }, async ({ browser }) => {
  const { page, context } = await visit(browser)
  await page.goto(server.url)
  await expect(page.getByText(/^100\d sessions/)).toBeVisible()
  const task = await longestTask(browser, page, () => scroll(page))
  measured.sessionsTaskMs = task.wall
  measured.sessionsTaskProcessorMs = task.processor
  await context.close()
})

test('scrolls curves of 100,000 points without a long task', { tag: '@budgets' }, async ({ browser }) => {
  const { page, context } = await visit(browser)
  await logIn(page, server.url)
  await page.evaluate((names) => localStorage.setItem('dressage-metrics', JSON.stringify(names)), METRICS)
  await page.goto(`${server.base}sessions/curves?tab=curves`)
  await expect(page.getByText('Metrics: 25 of 25')).toBeVisible({ timeout: 60_000 })
  await expect(page.getByText(/default-s3: 2048000 of 2048000|default-s3: 2\.048e6|default-s3: 2[,.]?048/)).toBeVisible({ timeout: 60_000 })
  await page.waitForTimeout(1_500)
  const task = await longestTask(browser, page, () => scroll(page))
  measured.curvesTaskMs = task.wall
  measured.curvesTaskProcessorMs = task.processor
  await context.close()
})

test('meets its budgets', { tag: '@budgets' }, () => {
  expect.soft(measured.initialJavaScriptKb).toBeLessThanOrEqual(BUDGET.initialJavaScriptKb)
  expect.soft(measured.firstPaintMs).toBeLessThanOrEqual(BUDGET.firstPaintMs)
  expect.soft(measured.interactiveMs).toBeLessThanOrEqual(BUDGET.interactiveMs)
  expect.soft(measured.updateMs).toBeLessThanOrEqual(BUDGET.updateMs)
  expect.soft(measured.sessionsTaskProcessorMs).toBeLessThanOrEqual(BUDGET.taskMs)
  expect.soft(measured.curvesTaskProcessorMs).toBeLessThanOrEqual(BUDGET.taskMs)
})
