// Text of models that tries to be more than text, in what a judged session stores: terms, criteria, evidence, the votes of a vision
// model, diagnoses, lessons, changes, warnings and failures; and what people write: labels, notes, cases of benchmarks.
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { expect, type Page, test } from '@playwright/test'

import { MODEL, Provider } from './scripted'
import { Server } from './server'
import { MARKUP, onlyText, TERMINAL, watchRequests } from './text_only'
import { choose, logIn, type Visit, visit } from './visit'

const WORD = 'w'.repeat(300)
let provider: Provider
let server: Server
let seen: Visit
let benchmark: string

test.describe.configure({ mode: 'serial' })

type Judgment = { verdicts: { kind: string; score: number; votes: number; comment?: string }[] }
type Listed = { assignments: { name: string; members: { evaluations: { rollouts: { artifact: string; label: string; judgment?: Judgment }[] }[] }[] }[] }

async function ended(id: string): Promise<void> {
  await expect
    .poll(async () => (await server.call('GetSession', { name: `sessions/${id}` })).state, { timeout: 400_000, intervals: [1_000] })
    .toMatch(/SUCCEEDED|EXHAUSTED|FAILED/)
}

async function rollouts(iteration: number) {
  const { assignments } = (await server.call('ListAssignments', { parent: `sessions/judged/iterations/${iteration}` })) as Listed
  return assignments.filter(({ name }) => !name.includes('/confirm')).flatMap(({ members }) => members.flatMap(({ evaluations }) => evaluations.at(-1)!.rollouts))
}

test.beforeAll(async ({ browser }) => {
  test.setTimeout(600_000)
  provider = await Provider.start('hostile')
  server = await Server.start(provider.environment, provider.options)
  const environment = 'environments/InvertedPendulum-v5'
  const create = (sessionId: string, spec: object) => server.call('CreateSession', { sessionId, spec: { model: MODEL, ...spec } })
  const reward = { seeds: 1, stepsPerMember: '2048', maxStepsPerMember: '2048', evaluations: 1, evaluationEpisodes: 3, checkpointEpisodes: 3 }
  await create('judged', { intent: 'balance the pole', environment, maxIterations: 2, reward })
  await server.call('SteerSession', { name: 'sessions/judged', note: `note-mark ${MARKUP} ${TERMINAL} ${WORD}` })
  await create('refused', { intent: 'refuse-mark: balance the pole', environment, maxIterations: 1, reward })
  const code = { candidates: 1, repairs: 0, episodes: 2, reportEpisodes: 2 }
  await create('failing', { intent: 'balance the pole', environment: 'environments/CartPole-v1', maxIterations: 1, code })
  const cases = [1, 2].map((number) => ({
    intent: `refuse-mark case-mark ${number} ${MARKUP} ${TERMINAL} ${WORD}`,
    environment: 'environments/CartPole-v1',
    category: `category-mark <img src=x onerror=alert(21)>\u202e${'c'.repeat(40)}`,
    difficulty: `difficulty-mark <script>alert(22)</script>\u202e${'d'.repeat(30)}`,
  }))
  const made = await server.call('CreateBenchmark', { cases, template: { model: MODEL, maxIterations: 1, code } }, 'BenchmarkService')
  benchmark = String(made.name)
  for (const id of ['judged', 'refused', 'failing']) await ended(id)
  await expect.poll(async () => (await server.call('GetBenchmark', { name: benchmark }, 'BenchmarkService')).completed, { timeout: 120_000 }).toBe(cases.length)
  const [rollout] = await rollouts(2)
  await server.call('LabelRollout', { rollout: rollout!.artifact, score: 0.25, comment: `remark-mark ${MARKUP} ${TERMINAL} ${WORD}` })
  // No service writes such a name; whoever has the folder could.
  const folder = join(server.folder, 'artifacts/sessions/judged/files')
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, `name-mark <img src=x onerror=alert(23)>\u202e${'n'.repeat(100)}.txt`), MARKUP)
  seen = await visit(browser)
  watchRequests(seen, server.base)
  await logIn(seen.page, server.url)
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
  provider?.stop()
})

type Shown = { of: string; path: () => string; texts: RegExp[]; prepare?: (page: Page) => Promise<void> }

const shows = (of: string, path: string, ...texts: RegExp[]): Shown => ({ of, path: () => path, texts })

const SHOWN: Shown[] = [
  shows('the list of sessions', '', /case-mark 1 <img src=x/),
  shows('a judged session', 'sessions/judged?iteration=2', /criterion-mark<script>/, /reasoning-mark <img/, /diagnosis-mark <img/, /change-mark <img/, /lesson-mark <img/),
  shows('the warnings of a session', 'sessions/judged?iteration=1', /warning-mark <img src=x onerror="alert\(1\)"><script>/),
  shows('its terms', 'sessions/judged?tab=code&iteration=2', /^term-mark<img src=x/, /^meaning-mark <img/),
  shows('its judgments', 'sessions/judged?tab=judgment&iteration=2', /criterion-mark<script>/, /^evidence-mark<img/, /title-mark<img.*seen-mark <img/, /reasoning-mark <img/, /looks-mark <img/),
  shows('its lineage', 'sessions/judged?tab=lineage', /change-mark <img/, /Lesson: lesson-mark <img/, /Your note: .?note-mark <img/, /^lesson-mark <img/),
  shows('its events', 'sessions/judged?tab=events', /warning-mark <img/, /note-mark <img/),
  shows('its replies', 'sessions/judged?tab=conversation', /review-mark <img/),
  shows('its files', 'sessions/judged?tab=artifacts', /name-mark <img src=x onerror=alert\(23\)>/),
  shows('a failed session', 'sessions/refused', /failure-mark <img src=x onerror="alert\(1\)"><script>/),
  shows('the events of a failed session', 'sessions/refused?tab=events', /failure-mark <img/),
  shows('failed candidates', 'sessions/failing?tab=code&iteration=1', /candidate-mark <img/),
  shows('the warning of failed candidates', 'sessions/failing?iteration=1', /candidate-mark <img/),
  shows('the events of candidates', 'sessions/failing?tab=events', /candidate-mark <img/),
  { of: 'the cases of a benchmark', path: () => benchmark, texts: [/category-mark <img/, /difficulty-mark <script>/, /case-mark 1 <img/, /failure-mark <img/] },
  shows('the list of benchmarks', 'benchmarks'),
  { of: 'compared benchmarks', path: () => `benchmarks/compare?first=${benchmark.split('/')[1]}&second=${benchmark.split('/')[1]}`, texts: [/category-mark <img/] },
  shows('compared iterations', 'compare?of=judged/1,judged/2,failing', /criterion-mark<script>/),
  shows('the cluster', 'cluster'),
]

for (const { of, path, texts } of SHOWN) {
  test(`is text in ${of}`, async () => {
    await seen.page.goto(`${server.base}${path()}`)
    await expect(seen.page.locator('.mantine-Skeleton-root:visible')).toHaveCount(0)
    for (const text of texts) await expect(seen.page.locator('main').getByText(text).first(), String(text)).toBeVisible()
    await seen.page.waitForTimeout(500)
    await onlyText(seen)
  })
}

test('is text in the curves, their legends and the choice of metrics', async () => {
  const { page } = seen
  await page.goto(`${server.base}sessions/judged?tab=curves&iteration=1`)
  const stacked = page.getByRole('img', { name: /^reward terms stacked, default-s0 over .*term-mark<img src=x onerror=alert\(11\)>.*: [\d.-]+/ })
  await expect(stacked).toBeVisible()
  const legend = page.getByRole('figure').filter({ has: stacked }).getByText(/^term-mark<img/)
  await expect(legend).toBeVisible()
  await page.getByRole('button', { name: /^Metrics: / }).click()
  await page.getByRole('checkbox', { name: /^reward term: term-mark<img/ }).check()
  await onlyText(seen)
  await page.keyboard.press('Escape')
  const chart = page.getByRole('img', { name: /^reward term: term-mark<img src=x/ })
  await expect(chart).toBeVisible()
  // What is read out under the pointer keeps its order: a name with an override is isolated.
  await stacked.scrollIntoViewIfNeeded()
  const box = (await stacked.locator('.u-over').boundingBox())!
  await page.mouse.move(box.x + box.width * 0.97, box.y + box.height / 2)
  await expect(page.getByRole('figure').filter({ has: stacked }).locator('[data-readout]')).toHaveText(/: \u2068term-mark<img[^\u2069]*\u2069 -?[\d.]+/)
  await onlyText(seen)
})

test('is text in the verdicts of code, video and people, which are those of the API', async () => {
  const { page } = seen
  await page.goto(`${server.base}sessions/judged?tab=rollouts&iteration=2`)
  const judged = (await rollouts(2)).find(({ judgment }) => judgment?.verdicts.some(({ kind }) => kind === 'JUDGE_KIND_HUMAN'))!
  const card = page.locator('section').filter({ hasText: 'people 0.25' }).last()
  const kinds = { JUDGE_KIND_CODE: 'code', JUDGE_KIND_VIDEO: 'video', JUDGE_KIND_HUMAN: 'people' } as Record<string, string>
  for (const { kind, score = 0 } of judged.judgment!.verdicts) await expect(card.getByText(`${kinds[kind]} ${score.toFixed(2)}`)).toBeVisible()
  const filmed = (await rollouts(2)).find(({ judgment }) => judgment?.verdicts.some(({ kind }) => kind === 'JUDGE_KIND_VIDEO'))!
  const verdict = filmed.judgment!.verdicts.find(({ kind }) => kind === 'JUDGE_KIND_VIDEO')!
  const badge = page.getByText(`video ${verdict.score.toFixed(2)}`).first()
  await badge.hover()
  await expect(page.getByRole('tooltip').getByText(/title-mark<img src=x/)).toBeVisible()
  await page.getByText('people 0.25').first().hover()
  await expect(page.getByRole('tooltip').getByText(/remark-mark <img src=x/)).toBeVisible()
  await page.mouse.move(0, 0)
  await expect(page.getByRole('tooltip')).toHaveCount(0)
  await onlyText(seen)
})

test('is text in proposed criteria and open questions', async () => {
  const { page } = seen
  await page.goto(`${server.base}new`)
  await choose(page, 'Environment', 'InvertedPendulum-v5')
  await page.getByRole('textbox', { name: 'Intent' }).fill('balance the pole')
  await page.getByRole('textbox', { name: 'Model' }).fill(MODEL)
  await page.getByRole('button', { name: 'Propose criteria' }).click()
  await expect(page.getByRole('textbox', { name: 'Title' }).first()).toHaveValue(/^wish-mark 0 <img src=x/)
  await expect(page.getByText(/^question-mark <img/)).toBeVisible()
  await onlyText(seen)
})

test('is text in a file that is opened by itself', async () => {
  const { page } = seen
  const answer = await page.goto(`${server.base}artifacts/sessions/judged/iterations/1/reward.py`)
  expect(answer!.headers()['content-type']).toBe('text/plain; charset=utf-8')
  expect(await page.locator('img, script').count()).toBe(0)
  await expect(page.getByText(/term-mark<img src=x/).first()).toBeVisible()
  // The page has an origin of its own, which may not even load the site's icon.
  expect(seen.problems.splice(0).filter((problem) => !problem.includes('NotSameOrigin'))).toEqual([])
})
