// Pages over many sessions, before a real server, without a language model.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { type BrowserContext, expect, type Page, test } from '@playwright/test'

import { fromCsv } from '../../src/lib/csv'
import { short } from '../../src/lib/format'
import { ROOT, Server } from './server'
import { barriersOf, choose, logIn, visit } from './visit'

let server: Server
let context: BrowserContext
let page: Page
let problems: string[]
const barriers: string[] = []
const accessible = async (what: string) => void barriers.push(...(await barriersOf(page, what)))
const overflow = (of: Page) => of.evaluate(() => document.documentElement.scrollWidth - innerWidth)

test.describe.configure({ mode: 'serial' })

const REWARD = `LATEX = r"v"
TERMS = {"speed": "forward velocity, m/s", "alive": "1 for every step"}


def reward(state, action, next_state, memory, np):
    return {"speed": next_state.x_velocity, "alive": 1.0 + 0.0 * next_state.x_velocity}
`

async function ended(id: string): Promise<void> {
  await expect
    .poll(async () => (await server.call('GetSession', { name: `sessions/${id}` })).state, { timeout: 330_000, intervals: [1_000] })
    .toMatch(/SUCCEEDED|EXHAUSTED/)
}

test.beforeAll(async ({ browser }) => {
  test.setTimeout(420_000)
  server = await Server.start({}, ['--recordings', join(ROOT, 'examples/behaviours')])
  ;({ context, page, problems } = await visit(browser))
  const environment = 'environments/Hopper-v5'
  const reward = { seeds: 2, stepsPerMember: '2048', maxStepsPerMember: '2048', evaluations: 1, evaluationEpisodes: 3 }
  await server.call('CreateSession', { sessionId: 'hop-1', spec: { intent: 'hop forward', environment, maxIterations: 2, reward } })
  await server.call('CreateSession', { sessionId: 'hop-2', spec: { intent: 'hop high', environment, reward: { ...reward, rewardSource: REWARD, trainOnly: true } } })
  await server.call('CreateSession', { sessionId: 'pole-1', spec: { intent: 'balance the pole', environment: 'environments/CartPole-v1', parameters: { episodeBudget: '600' } } })
  for (const id of ['hop-1', 'hop-2', 'pole-1']) await ended(id)
  await logIn(page, server.url)
})

test.afterAll(async () => {
  await context?.close()
  await server?.stop()
})

test.afterEach(() => {
  expect(problems.splice(0)).toEqual([])
})

test('compares sessions that the list has selected', async () => {
  await page.getByRole('checkbox', { name: 'Select all' }).check()
  await page.getByRole('main').getByRole('link', { name: 'Compare', exact: true }).click()
  await expect(page.getByRole('heading', { name: 'Compare' })).toBeVisible()
  const rows = page.getByRole('table').first().getByRole('row')
  await expect(rows).toHaveCount(4)
  expect(new URL(page.url()).searchParams.get('of')?.split(',').sort()).toEqual(['hop-1', 'hop-2', 'pole-1'])
  await expect(page.getByRole('img', { name: /^episode return in training over|^judge's score over/ })).toBeVisible()
  await expect(page.getByRole('img', { name: /^best score of the search over.*pole-1/ })).toBeVisible()
  await choose(page, 'Metric', 'evaluation: environment return')
  const chart = page.getByRole('img', { name: /^evaluation: environment return over environment steps/ })
  await expect(chart).toHaveAttribute('aria-label', /(?=.*hop-1: [\d.-]+)(?=.*hop-2: [\d.-]+)/)
  await accessible('compare')
})

test('compares parts of sessions, and the address keeps the choice', async () => {
  await choose(page, 'Part of hop-1', 'iteration 1')
  await expect(page).toHaveURL(/hop-1%2F1|hop-1\/1/)
  await page.getByRole('button', { name: 'Remove pole-1' }).click()
  await page.goto(`${server.base}compare?of=hop-1/1,hop-1/2,hop-1/2/default-s1`)
  await page.reload()
  await expect(page.getByRole('table').first().getByRole('row')).toHaveCount(4)
  const node = (await server.call('GetIteration', { name: 'sessions/hop-1/iterations/1' })) as { score: number; judgment: { intervalLow: number } }
  const first = page.getByRole('table').first().getByRole('row').nth(1)
  await expect(first).toContainText(node.score.toFixed(2))
  await expect(first).toContainText(`${node.judgment.intervalLow.toFixed(2)} to`)
  const difference = page.getByRole('region', { name: 'Difference from hop-1/1 to hop-1/2' })
  await expect(difference.locator('.added').first()).toBeVisible()
  await expect(page.getByLabel(/^Video hop-1/).first()).toBeVisible()
  await page.goto(`${server.base}sessions/hop-1?tab=lineage`)
  await page.getByRole('link', { name: 'compare with its parent' }).click()
  await expect(page).toHaveURL(/hop-1(%2F|\/)1(%2C|,)hop-1(%2F|\/)2/)
})

test('adds and removes by the keyboard, and names what does not exist', async () => {
  await page.goto(`${server.base}compare?of=not-there`)
  await expect(page.getByText('There is no such session.')).toBeVisible()
  await page.getByRole('combobox', { name: 'Add a session' }).focus()
  await page.keyboard.type('pole-1')
  await page.keyboard.press('ArrowDown')
  await page.keyboard.press('Enter')
  await expect(page).toHaveURL(/not-there(%2C|,)pole-1/)
  await page.getByRole('button', { name: 'Remove not-there' }).focus()
  await page.keyboard.press('Enter')
  await expect(page.getByText('There is no such session.')).toBeHidden()
})

const CASES = `env_id,instruction,category,difficulty
CartPole-v1,balance the pole,pole,easy
CartPole-v1,"keep the pole up, and the cart in the middle",pole,medium
CartPole-v1,balance for long,cart,medium
`

test('names what is wrong with cases, and starts a benchmark from a file', async () => {
  await page.getByRole('link', { name: 'Benchmarks', exact: true }).click()
  await expect(page.getByText('No benchmarks yet')).toBeVisible()
  await accessible('no benchmarks')
  await page.getByRole('link', { name: 'New benchmark' }).click()
  await page.getByRole('textbox', { name: 'Cases' }).fill('env_id,instruction\nCartPol-v1,balance\n')
  await expect(page.getByRole('alert')).toContainText('case 1: unknown environment CartPol-v1.')
  await expect(page.getByRole('button', { name: /^Start(?! over)/ })).toBeDisabled()
  await page.locator('input[type=file]').setInputFiles({ name: 'poles.csv', mimeType: 'text/csv', buffer: Buffer.from(CASES) })
  await expect(page.getByRole('table', { name: 'Cases that were read' }).getByRole('row')).toHaveCount(4)
  await page.getByText('parameters', { exact: true }).click()
  await page.getByRole('textbox', { name: 'Gate' }).fill('0.5')
  await expect(page.getByText('One after another, at most')).toBeVisible()
  await accessible('new benchmark')
  await page.getByRole('button', { name: 'Start 3 sessions' }).click()
  await expect(page.getByRole('heading', { name: /^Benchmark b-/ })).toBeVisible()
})

test('shows the stages of a benchmark live, and its results by group', async () => {
  const stages = page.getByRole('list', { name: 'Stages' }).getByRole('listitem')
  await expect(stages).toHaveCount(2)
  await expect(stages.first()).toContainText('running')
  await expect(page.getByText('complete', { exact: true })).toBeVisible({ timeout: 170_000 })
  await expect(stages.nth(1)).toContainText('1 of 1')
  await page.getByText('difficulty', { exact: true }).click()
  await expect(page.getByRole('row', { name: /^medium 2 of 2/ })).toBeVisible()
  type Group = { kind: string; value: string; passed?: number; completed?: number; total: number; successRate?: number; successLow: number; successHigh: number; meanScore?: number }
  const name = `benchmarks/${new URL(page.url()).pathname.split('/').pop()}`
  const { groups } = (await server.call('GetBenchmark', { name }, 'BenchmarkService')) as { groups: Group[] }
  const shown = groups.filter(({ kind }) => ['difficulty', 'all'].includes(kind))
  expect(shown.map(({ value }) => value).sort()).toEqual(['all', 'easy', 'medium'])
  const percent = (value = 0) => Math.round(value * 100)
  for (const { value, passed = 0, completed = 0, total, successRate, successLow = 0, successHigh, meanScore = 0 } of shown) {
    const cells = page.getByRole('row', { name: new RegExp(`^${value} \\d+ of`) }).getByRole('cell')
    await expect(cells).toContainText([value, `${completed} of ${total}`, String(passed), `${percent(successRate)} %  ${percent(successLow)} to ${percent(successHigh)} %`, short(meanScore), '', '', ''])
  }
  await accessible('benchmark')
})

test("saves the tables as CSV with what the command line's report has", async () => {
  const name = `benchmarks/${new URL(page.url()).pathname.split('/').pop()}`
  const stored = JSON.stringify(await server.call('GetBenchmark', { name }, 'BenchmarkService'))
  for (const table of ['cases', 'groups'] as const) {
    await page.getByRole('button', { name: 'CSV' }).click()
    const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('menuitem', { name: table }).click()])
    const saved = fromCsv(readFileSync(await download.path(), 'utf8'))
    expect(saved.map((row) => row.map(normal))).toEqual(fromCsv(ofCommandLine(stored, table)).map((row) => row.map(normal)))
  }
})

test('compares two benchmarks, and saves the comparison', async () => {
  const cases = ['balance the pole', 'balance for long'].map((intent) => ({ intent, environment: 'environments/CartPole-v1', category: 'pole', difficulty: 'easy' }))
  const address = page.url()
  const made = await server.call('CreateBenchmark', { cases, template: { passThreshold: 1, parameters: { episodeBudget: '4', episodes: 2, reportEpisodes: 2 } } }, 'BenchmarkService')
  await expect.poll(async () => (await server.call('GetBenchmark', { name: made.name }, 'BenchmarkService')).completed, { timeout: 120_000 }).toBe(2)
  const other = String(made.name).split('/')[1]!
  await page.getByRole('main').getByRole('link', { name: 'Compare', exact: true }).click()
  await expect(page.getByText('Choose two benchmarks')).toBeVisible()
  const option = page.getByRole('option', { name: new RegExp(`^${other}`) })
  await page.getByRole('combobox', { name: 'Second' }).click()
  await option.click()
  await page.reload()
  const all = page.getByRole('table', { name: 'Success rates of both' }).getByRole('row').nth(1)
  const groups = await Promise.all(
    [new URL(address).pathname.split('/').pop()!, other].map(async (id) => ((await server.call('GetBenchmark', { name: `benchmarks/${id}` }, 'BenchmarkService')) as { groups: { kind: string; successRate?: number }[] }).groups.find(({ kind }) => kind === 'all')!),
  )
  const [first, second] = groups.map((group) => group.successRate ?? 0)
  await expect(all).toContainText(`${Math.round(first! * 100)} %`)
  await expect(all).toContainText(`${Math.abs(Math.round((second! - first!) * 100))} points`)
  await expect(page.getByText('Ended in both').locator('..')).toContainText('2')
  await accessible('benchmarks compared')
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'CSV' }).click()])
  const saved = fromCsv(readFileSync(await download.path(), 'utf8'))
  expect(Number(saved[1]![saved[0]!.indexOf('difference')])).toBeCloseTo(second! - first!, 5)
  await page.goto(address)
  for (const entry of (await server.call('GetBenchmark', { name: made.name }, 'BenchmarkService')).cases as { session: string }[]) await server.call('DeleteSession', { name: entry.session })
})

test('deletes and restores a benchmark with its sessions', async () => {
  const id = new URL(page.url()).pathname.split('/').pop()!
  await page.getByRole('button', { name: 'Delete' }).click()
  await expect(page.getByRole('dialog').getByRole('button', { name: 'Delete' })).toBeFocused()
  await page.keyboard.press('Enter')
  await expect(page.getByText('in the trash', { exact: true })).toBeVisible()
  await page.getByRole('link', { name: 'Benchmarks', exact: true }).click()
  await expect(page.getByText('No benchmarks yet')).toBeVisible()
  await page.getByRole('button', { name: 'Trash' }).click()
  await page.getByRole('link', { name: id, exact: true }).click()
  await page.getByRole('button', { name: 'Restore' }).click()
  await expect(page.getByText('in the trash', { exact: true })).toBeHidden()
  await page.getByRole('link', { name: 'Benchmarks', exact: true }).click()
  await expect(page.getByRole('row', { name: /3 of 3/ })).toBeVisible()
  await accessible('benchmarks')
})

async function benchmark(): Promise<string> {
  const list = (await server.call('ListBenchmarks', {}, 'BenchmarkService')) as { benchmarks: { name: string }[] }
  return list.benchmarks[0]!.name.split('/')[1]!
}

/** A cell as a number where it is one: 1.0 and 1 are the same. */
const normal = (cell: string) => (cell !== '' && Number.isFinite(Number(cell)) ? Number(cell) : cell)

function ofCommandLine(benchmark: string, table: 'cases' | 'groups'): string {
  const program = `import sys
from dressage.api.v1 import benchmark_service_pb2 as pb
from dressage.cli.benchmark_report import ${table}_csv
from google.protobuf import json_format
print(${table}_csv(json_format.Parse(sys.stdin.read(), pb.Benchmark())), end="")`
  return execFileSync(join(ROOT, '.venv/bin/python'), ['-c', program], { input: benchmark, encoding: 'utf8' })
}

test('shows the pools, what runs and what models cost', async () => {
  const spec = { intent: 'stand upright', environment: 'environments/Hopper-v5', reward: { seeds: 1, stepsPerMember: '400000', earlyStop: false, maxStepsPerMember: '400000' } }
  await server.call('CreateSession', { sessionId: 'long-1', spec })
  await page.getByRole('link', { name: 'Cluster', exact: true }).click()
  await expect(page.getByRole('heading', { name: /^Pool local/ })).toBeVisible()
  await expect(page.getByRole('row', { name: /stand upright.*running/ })).toContainText('Hopper-v5', { timeout: 90_000 })
  await expect(page.getByRole('row', { name: /stand upright/ })).toContainText('steps/s', { timeout: 90_000 })
  await expect(page.getByText('No calls of a language model')).toBeVisible()
  await expect(page.getByText('DRESSAGE_CONSOLE_PROMETHEUS_URL')).toBeVisible()
  await accessible('cluster')
  await server.call('CancelSession', { name: 'sessions/long-1' })
  await expect(page.getByRole('row', { name: /stand upright.*running/ })).toBeHidden({ timeout: 60_000 })
})

test('proposes criteria to tick and edit, and sends what is ticked', async () => {
  await page.goto(`${server.base}new`)
  await choose(page, 'Environment', 'Hopper-v5')
  await page.getByRole('textbox', { name: 'Intent' }).fill('hop forward')
  await page.getByRole('button', { name: 'Propose criteria' }).click()
  const boxes = page.getByRole('checkbox', { name: /^Use / })
  await expect(boxes.first()).toBeVisible()
  const count = await boxes.count()
  await boxes.first().setChecked(false)
  await page.getByRole('button', { name: 'Add your own' }).click()
  await page.getByRole('textbox', { name: 'Title' }).last().fill('quiet landings')
  await expect(page.getByText(new RegExp(`of ${count + 1} count`))).toBeVisible()
  await page.getByRole('button', { name: 'Limits and training' }).click()
  await page.getByRole('textbox', { name: 'Patience', exact: true }).fill('3')
  await choose(page, 'From parent', 'always')
  await expect(page.locator('.command')).toContainText('--patience 3 --from-parent always --criteria criteria.json')
  await accessible('criteria')
  await page.getByRole('switch', { name: 'Approve' }).check()
  await page.getByRole('button', { name: 'Start the session' }).click()
  await expect(page.getByRole('heading', { name: 'hop forward' })).toBeVisible()
  const id = new URL(page.url()).pathname.split('/').pop()
  const { spec } = (await server.call('GetSession', { name: `sessions/${id}` })) as { spec: { criteria: { title: string }[]; reward: object } }
  expect(spec.criteria.map((entry) => entry.title)).toContain('quiet landings')
  expect(spec.criteria.length).toBeGreaterThan(0)
  expect(spec.reward).toMatchObject({ patience: 3, fromParent: 'FROM_PARENT_ALWAYS' })
  await server.call('DeleteSession', { name: `sessions/${id}`, force: true })
})

test('shows terms stacked, the weights of a policy, candidates and transcripts', async () => {
  await page.goto(`${server.base}sessions/hop-1?tab=curves&iteration=1`)
  await expect(page.getByRole('img', { name: /^reward terms stacked, default-s0 over/ })).toBeVisible()
  await page.goto(`${server.base}sessions/pole-1?tab=code`)
  await expect(page.getByRole('table', { name: /^10 parameters between/ }).getByRole('row')).toHaveCount(3)
  await server.call('CreateSession', {
    sessionId: 'code-1',
    spec: { intent: 'balance the pole', environment: 'environments/CartPole-v1', model: 'recorded/code_pole', maxIterations: 1, code: { candidates: 3, reportEpisodes: 5 } },
  })
  await ended('code-1')
  await page.goto(`${server.base}sessions/code-1?tab=code`)
  await expect(page.getByRole('table', { name: 'Candidates' }).getByRole('row')).toHaveCount(4)
  await page.getByRole('button', { name: 'show candidate 2' }).click()
  await expect(page.getByRole('region', { name: 'candidate 2' })).toContainText('class Policy')
  await accessible('candidates')
  await page.goto(`${server.base}sessions/code-1?tab=conversation`)
  await page.getByText('transcripts', { exact: true }).click()
  await expect(page.getByText('You are the').first()).toBeVisible()
  await expect(page.locator('.transcript').last()).toContainText('class')
  await accessible('transcripts')
})

test('is usable at the width of a phone', async () => {
  const phone = await context.newPage()
  await phone.setViewportSize({ width: 390, height: 844 })
  for (const path of ['compare', 'compare?of=hop-1,hop-1/1,pole-1', 'benchmarks', 'benchmarks/new', `benchmarks/${await benchmark()}`, 'cluster', 'sessions/code-1?tab=code', 'sessions/pole-1?tab=code']) {
    await phone.goto(server.base + path)
    await phone.waitForTimeout(1500)
    expect.soft(await overflow(phone), path).toBeLessThanOrEqual(0)
  }
  await phone.goto(server.base)
  await phone.getByRole('button', { name: 'Pages' }).click()
  await phone.getByRole('menuitem', { name: 'Cluster' }).click()
  await expect(phone.getByRole('heading', { name: 'Cluster' })).toBeVisible()
  await phone.close()
})

test('has no barrier that axe finds, in either scheme', () => {
  expect(barriers).toEqual([])
})
