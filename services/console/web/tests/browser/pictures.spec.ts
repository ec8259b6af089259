// Pictures of every page, light, dark and as wide as a phone, in build/console-pictures. People look at them; the test only
// makes sure that no page still loads and none is wider than a phone. DRESSAGE_PICTURES, a regular expression, selects some by name.
import { mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { expect, type Page, test } from '@playwright/test'

import { ROOT, Server } from './server'
import { choose, logIn, visit, type Visit } from './visit'

const FOLDER = join(ROOT, 'build/console-pictures')
const WIDE = { width: 1360, height: 860 }
const NARROW = { width: 390, height: 844 }
const CHOSEN = new RegExp(process.env.DRESSAGE_PICTURES ?? '')
const ENDED = /SUCCEEDED|EXHAUSTED/
let server: Server
let seen: Visit
let benchmark: string
let other: string
const tooWide: string[] = []

test.describe.configure({ mode: 'serial' })

type Shown = { name: string; path: string; prepare?: (page: Page) => Promise<void> }

const tabs = ['overview', 'curves', 'rollouts', 'code', 'judgment', 'lineage', 'conversation', 'artifacts', 'events']

const PAGES: (() => Shown)[] = [
  () => ({ name: 'sessions', path: '' }),
  () => ({ name: 'new', path: 'new', prepare: newSession }),
  () => ({ name: 'new-further', path: 'new', prepare: further }),
  ...tabs.map((tab) => () => ({ name: `session-${tab}`, path: `sessions/crawl?tab=${tab}` })),
  () => ({ name: 'session-3d', path: 'sessions/crawl?tab=rollouts', prepare: scene }),
  () => ({ name: 'session-videos', path: 'sessions/crawl?tab=rollouts', prepare: measured }),
  () => ({ name: 'session-difference', path: 'sessions/crawl?tab=code&iteration=2', prepare: difference }),
  () => ({ name: 'session-approval', path: 'sessions/held-1' }),
  () => ({ name: 'session-queue', path: 'sessions/waits-2' }),
  () => ({ name: 'parameters-overview', path: 'sessions/pole' }),
  () => ({ name: 'parameters-curves', path: 'sessions/pole?tab=curves' }),
  () => ({ name: 'parameters-code', path: 'sessions/pole?tab=code' }),
  () => ({ name: 'code-overview', path: 'sessions/policy' }),
  () => ({ name: 'code-code', path: 'sessions/policy?tab=code' }),
  () => ({ name: 'program-overview', path: 'sessions/door' }),
  () => ({ name: 'program-code', path: 'sessions/door?tab=code', prepare: program }),
  () => ({ name: 'compare', path: 'compare?of=crawl,crawl/1,crawl/2/default-s1' }),
  () => ({ name: 'compare-methods', path: 'compare?of=pole,policy,door' }),
  () => ({ name: 'compare-nothing', path: 'compare' }),
  () => ({ name: 'benchmarks', path: 'benchmarks' }),
  () => ({ name: 'benchmark', path: benchmark }),
  () => ({ name: 'benchmark-new', path: 'benchmarks/new' }),
  () => ({ name: 'benchmarks-compared', path: `benchmarks/compare?first=${benchmark.split('/')[1]}&second=${other.split('/')[1]}` }),
  () => ({ name: 'cluster', path: 'cluster' }),
  () => ({ name: 'trash', path: '?deleted=true' }),
  () => ({ name: 'not-there', path: 'sessions/not-there' }),
]

async function newSession(page: Page): Promise<void> {
  await choose(page, 'Environment', 'HalfCheetah-v5')
  await page.getByLabel('Intent').fill('run forward fast')
  await page.waitForTimeout(2_000) // the plan follows the last key
}

async function further(page: Page): Promise<void> {
  await newSession(page)
  await page.getByRole('button', { name: /^Further settings/ }).click()
}

async function scene(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Show in 3D' }).click()
  const view = page.getByRole('application', { name: /3D view/ })
  await expect(view.locator('canvas[data-drawn]')).toBeVisible({ timeout: 60_000 })
  await page.getByRole('combobox', { name: 'Ghost' }).click()
  await page.getByRole('option', { name: /^default-s1/ }).first().click()
  await expect(page.getByText('ghost beside')).toBeVisible()
  await page.getByRole('slider', { name: 'Time in 3D' }).focus()
  for (let step = 0; step < 3; step += 1) await page.keyboard.press('PageUp')
  await view.scrollIntoViewIfNeeded()
}

async function measured(page: Page): Promise<void> {
  await page.getByRole('switch', { name: 'measured fields' }).check()
  await expect(page.locator('.chart-marker').first()).toBeVisible()
  await page.getByRole('slider', { name: 'Time', exact: true }).focus()
  for (let step = 0; step < 3; step += 1) await page.keyboard.press('PageUp')
}

async function difference(page: Page): Promise<void> {
  await page.getByText('difference', { exact: true }).click()
}

async function program(page: Page): Promise<void> {
  const grid = page.getByRole('application', { name: /^Grid of the episode/ })
  await expect(grid).toBeVisible()
  await grid.focus()
  for (let step = 0; step < 9; step += 1) await page.keyboard.press('.')
}

async function ended(id: string): Promise<void> {
  await expect.poll(async () => (await server.call('GetSession', { name: `sessions/${id}` })).state, { timeout: 1_200_000, intervals: [2_000] }).toMatch(ENDED)
}

const recorded = (name: string) => ({
  ...(JSON.parse(readFileSync(join(ROOT, `examples/behaviours/${name}/session.json`), 'utf8')) as { reward?: object }),
  model: `recorded/${name}`,
})

test.beforeAll(async ({ browser }) => {
  test.setTimeout(3_000_000)
  mkdirSync(FOLDER, { recursive: true })
  server = await Server.start({ DRESSAGE_ORCHESTRATOR_MAX_RUNNING_SESSIONS: '2' }, ['--recordings', join(ROOT, 'examples/behaviours')])
  const create = (sessionId: string, spec: object) => server.call('CreateSession', { sessionId, spec })
  const crawl = recorded('low_crawl')
  await create('crawl', { ...crawl, reward: { ...crawl.reward, seeds: 2 } })
  await create('policy', recorded('code_pole'))
  await create('pole', { intent: 'balance the pole', environment: 'environments/CartPole-v1', parameters: { episodeBudget: '600' } })
  await create('door', { intent: 'open the door, then reach the goal', environment: 'environments/karel/DoorKey', program: {} })
  const cases = ['balance the pole', 'keep the pole up, and the cart in the middle'].map((intent, index) => ({
    intent, environment: 'environments/CartPole-v1', category: 'pole', difficulty: index === 0 ? 'easy' : 'medium',
  }))
  const start = async (episodeBudget: string) => String((await server.call('CreateBenchmark', { cases, staged: true, stageGate: 0.05, template: { parameters: { episodeBudget } } }, 'BenchmarkService')).name)
  benchmark = await start('200')
  other = await start('20')
  for (const id of ['crawl', 'policy', 'pole', 'door']) await ended(id)
  for (const name of [benchmark, other]) await expect.poll(async () => (await server.call('GetBenchmark', { name }, 'BenchmarkService')).completed, { timeout: 300_000 }).toBe(cases.length)
  // Two wait for a person and hold both places, two wait for a place.
  const reward = { seeds: 1, stepsPerMember: '2048' }
  for (const [id, intent] of [['held-1', 'hop forward'], ['held-2', 'stand upright'], ['waits-1', 'hop backward'], ['waits-2', 'jump']] as const) {
    await create(id, { intent, environment: 'environments/Hopper-v5', approveBeforeEvaluation: true, reward })
    if (id.startsWith('held')) await expect.poll(async () => (await server.call('GetSession', { name: `sessions/${id}` })).awaitingApproval, { timeout: 300_000 }).toBe(1)
  }
  seen = await visit(browser)
  await logIn(seen.page, server.url)
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
})

test('takes pictures of every page', { tag: '@pictures' }, async () => {
  test.setTimeout(1_200_000)
  const { page } = seen
  for (const [mode, size, scheme] of [['light', WIDE, 'light'], ['dark', WIDE, 'dark'], ['narrow', NARROW, 'light']] as const) {
    await page.setViewportSize(size)
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: 'reduce' })
    for (const shown of PAGES.map((entry) => entry()).filter(({ name }) => CHOSEN.test(`${name}-${mode}`))) {
      await page.goto(`${server.base}${shown.path}`)
      await expect(page.locator('.mantine-Skeleton-root:visible, .mantine-Loader-root:visible')).toHaveCount(0, { timeout: 60_000 })
      await page.waitForTimeout(700) // charts and lists draw after their data
      await shown.prepare?.(page)
      await page.waitForTimeout(500)
      // Charts draw when they come near.
      for (let top = 0; top < (await page.evaluate(() => document.documentElement.scrollHeight)); top += 600) await page.evaluate((y) => scrollTo(0, y), top)
      await page.waitForFunction(() => [...document.querySelectorAll('figure [role=img]:not([aria-label$="none"])')].every((chart) => chart.querySelector('canvas') !== null))
      await page.evaluate(() => scrollTo(0, 0))
      await page.screenshot({ path: join(FOLDER, `${shown.name}-${mode}.png`), animations: 'disabled', fullPage: true })
      const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
      if (excess > 0) tooWide.push(`${shown.name}, ${mode}: ${excess} px`)
    }
  }
  await page.getByRole('button', { name: 'Log out' }).click()
  await expect(page.getByLabel('Token')).toBeVisible()
  await page.screenshot({ path: join(FOLDER, 'login-narrow.png'), animations: 'disabled' })
  await page.setViewportSize(WIDE)
  await page.screenshot({ path: join(FOLDER, 'login-light.png'), animations: 'disabled' })
  expect(tooWide).toEqual([])
  expect(seen.problems).toEqual([])
})
