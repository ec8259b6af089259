// What the pages show is what the API returns: every page and part of a session, compared value by value. The model's provider is
// scripted; trainings, searches and judgments are real.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { createClient } from '@connectrpc/connect'
import { createConnectTransport } from '@connectrpc/connect-web'
import { expect, type Locator, type Page, test } from '@playwright/test'

import type { Event } from '../../src/gen/dressage/v1/event_pb'
import { SessionService } from '../../src/gen/dressage/v1/session_service_pb'
import { compact, duration, short } from '../../src/lib/format'
import { MODEL, Provider } from './scripted'
import { ROOT, Server } from './server'
import { choose, logIn, type Visit, visit } from './visit'

let provider: Provider
let server: Server
let seen: Visit
let page: Page

test.describe.configure({ mode: 'serial' })

type Cost = { requests: string; inputTokens?: string; outputTokens?: string; dollars?: number }
type Verdict = { kind: string; score?: number; evidence?: Record<string, number> }
type Judgment = { score?: number; samples: number[]; intervalLow?: number; intervalHigh?: number; criteria: { name: string; score?: number }[]; diagnosis: string; verdicts: Verdict[]; judgedBy: string; rollouts: number }
type Rollout = { artifact: string; label: string; seed?: string; return?: number; judgment?: Judgment }
type Member = { name: string; judgment?: Judgment; evaluations: { envStep: string; returns: number[]; rollouts: Rollout[] }[] }
type Assignment = { name: string; members: Member[] }
type Candidate = { meanReturn?: number; returns?: number[]; source?: string }
type Iteration = {
  number: number
  score?: number
  judgment: Judgment
  reward?: { source: string; terms: Record<string, string> }
  code?: { candidates: Candidate[]; chosen: number }
  parameters?: { values: number[]; search: { bestScore: number } }
}
type Session = { state: string; bestScore: number; bestIteration: string; goal: string; cost: Cost; costByRole: Record<string, Cost>; envSteps: string; awaitingApproval?: number; owner: string; spec: Record<string, unknown> }

const get = async <T>(method: string, body: object, service = 'SessionService') => (await server.call(method, body, service)) as T
const session = (id: string) => get<Session>('GetSession', { name: `sessions/${id}` })
const iteration = (id: string, number: number) => get<Iteration>('GetIteration', { name: `sessions/${id}/iterations/${number}` })
const members = async (id: string, number: number) =>
  (await get<{ assignments: Assignment[] }>('ListAssignments', { parent: `sessions/${id}/iterations/${number}` })).assignments.filter(({ name }) => !name.includes('/confirm')).flatMap((entry) => entry.members)
const idOf = (name: string) => name.split('/').at(-1)!
const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length
const fixed = (value = 0, digits = 2) => value.toFixed(digits)
const dollars = ({ dollars: value = 0 }: Cost) => `$${value.toFixed(value < 1 ? 3 : 2)}`

/** All events of a session that has ended. */
async function eventsOf(id: string): Promise<Event[]> {
  const withToken: typeof fetch = (input, init) => fetch(input, { ...init, headers: { ...Object.fromEntries(new Headers(init?.headers)), authorization: `Bearer ${server.token}` } })
  const client = createClient(SessionService, createConnectTransport({ baseUrl: server.base.replace(/\/$/, ''), fetch: withToken }))
  const events: Event[] = []
  for await (const { event } of client.watchSession({ name: `sessions/${id}` })) if (event !== undefined) events.push(event)
  return events
}

async function ended(id: string): Promise<void> {
  await expect.poll(async () => (await session(id)).state, { timeout: 400_000, intervals: [1_000] }).toMatch(/SUCCEEDED|EXHAUSTED/)
}

test.beforeAll(async ({ browser }) => {
  test.setTimeout(600_000)
  provider = await Provider.start('one_revision')
  server = await Server.start(provider.environment, [...provider.options, '--recordings', join(ROOT, 'examples/behaviours')])
  const create = (sessionId: string, spec: object) => server.call('CreateSession', { sessionId, spec })
  const reward = { seeds: 2, stepsPerMember: '4096', maxStepsPerMember: '4096', evaluations: 2, evaluationEpisodes: 3, checkpointEpisodes: 3 }
  await create('pole', { intent: 'balance the pole', environment: 'environments/InvertedPendulum-v5', model: MODEL, videoJudging: 'VIDEO_JUDGING_NONE', maxIterations: 2, reward })
  await create('search', { intent: 'keep the pole up', environment: 'environments/CartPole-v1', parameters: { episodeBudget: '200', target: 10_000 } })
  await create('written', { intent: 'balance the pole', environment: 'environments/CartPole-v1', model: 'recorded/code_pole', maxIterations: 1, code: { candidates: 3, reportEpisodes: 5 } })
  for (const id of ['pole', 'search', 'written']) await ended(id)
  seen = await visit(browser)
  page = seen.page
  await logIn(page, server.url)
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
  provider?.stop()
})

test.afterEach(() => {
  expect(seen.problems.splice(0)).toEqual([])
})

async function open(id: string, tab: string, number: number): Promise<void> {
  await page.goto(`${server.base}sessions/${id}?tab=${tab}&iteration=${number}`)
  await expect(page.locator('.mantine-Skeleton-root:visible')).toHaveCount(0)
}

const panel = (title: string | RegExp): Locator => page.locator('section', { has: page.getByRole('heading', { name: title, level: 2 }) }).last()
const fact = (label: string, within: Locator | Page = page): Locator => within.getByText(label, { exact: true }).locator('xpath=self::p/following-sibling::div')

/** The values at the ends of a chart's lines, which its name states, by the line. */
async function lastValues(title: string): Promise<Record<string, string>> {
  const chart = page.getByRole('img', { name: `${title} over ` })
  await expect(chart).toBeVisible()
  const [, text = ''] = /Last values: (.*)$/.exec((await chart.getAttribute('aria-label'))!)!
  return Object.fromEntries(text.split(', ').map((entry) => [entry.slice(0, entry.lastIndexOf(': ')), entry.slice(entry.lastIndexOf(': ') + 2)]))
}

test('the list states each session as the API does', async () => {
  const { sessions } = await get<{ sessions: (Session & { name: string; method: string })[] }>('ListSessions', {})
  expect(sessions).toHaveLength(3)
  for (const entry of sessions) {
    const row = page.getByRole('row').filter({ has: page.getByLabel(`Select ${idOf(entry.name)}`) })
    const score = entry.method === 'reward' ? fixed(entry.bestScore) : short(entry.bestScore)
    const cells = row.getByRole('cell')
    const expected = [String(entry.spec.intent), entry.state.split('_').at(-1)!, String(entry.spec.environment).split('/')[1]!, entry.method, `${score}of ${short(Number(/-?\d+(\.\d+)?/.exec(entry.goal)![0]))}`, entry.cost?.dollars ? dollars(entry.cost) : /^(–|\$0\.000)$/, entry.owner]
    for (const [index, text] of expected.entries()) await expect(cells.nth(index + 1)).toContainText(typeof text === 'string' ? new RegExp(text.replace(/[.$]/g, '\\$&'), 'i') : text)
  }
})

test('filters by state, method and environment show what the API has', async () => {
  const rows = page.getByRole('table', { name: 'Sessions' }).getByRole('row')
  const only = async (list: string, option: string, ids: string[]) => {
    await page.goto(server.base)
    await choose(page, list, option)
    await expect(rows).toHaveCount(1 + ids.length)
    for (const id of ids) await expect(page.getByLabel(`Select ${id}`)).toBeVisible()
  }
  const { sessions } = await get<{ sessions: { name: string; state: string }[] }>('ListSessions', {})
  const exhausted = sessions.filter(({ state }) => state.endsWith('EXHAUSTED')).map(({ name }) => idOf(name))
  expect(exhausted).toContain('pole')
  await only('State', 'exhausted', exhausted)
  await only('Method', 'code', ['written'])
  await only('Environment', 'CartPole-v1', ['search', 'written'])
})

test('the head of a session and its overview have its numbers', async () => {
  await open('pole', 'overview', 2)
  const resource = await session('pole')
  await expect(fact('Score')).toHaveText(`${fixed(resource.bestScore)} of ${/\d+(\.\d+)?/.exec(resource.goal)![0]}`)
  await expect(fact('Steps')).toHaveText(compact(BigInt(resource.envSteps)))
  await expect(fact('Model calls')).toHaveText(resource.cost.requests)
  await expect(fact('Tokens')).toHaveText(compact(BigInt(resource.cost.inputTokens!) + BigInt(resource.cost.outputTokens!)))
  await expect(fact('Cost')).toHaveText(dollars(resource.cost))
  expect(resource.cost.dollars).toBeGreaterThan(0)
  for (const number of [1, 2]) {
    const { score } = await iteration('pole', number)
    const row = panel('Iterations').getByRole('row').nth(number)
    await expect(row.getByRole('cell').nth(2)).toHaveText(fixed(score))
    await expect(row.getByText('best')).toHaveCount(resource.bestIteration.endsWith(`/${number}`) ? 1 : 0)
  }
  await expect(panel('Iterations').getByRole('row').nth(2)).toContainText('Take the angle as a cost.')
  await expect(panel('Why it changed')).toContainText('The pole leans.')
})

test('the curves end at the values of the last events, for each member', async () => {
  await page.evaluate(() => localStorage.removeItem('dressage-metrics'))
  await open('pole', 'curves', 2)
  const all = await members('pole', 2)
  expect(all).toHaveLength(2)
  const byMember = (value: (member: Member) => number) => Object.fromEntries(all.map((member) => [idOf(member.name), short(value(member))]))
  expect(await lastValues('evaluation: environment return')).toEqual(byMember(({ evaluations }) => mean(evaluations.at(-1)!.returns)))
  // A member's own judgment is that of its best checkpoint, which need not be the last one.
  const judged = new Map<string, { step: number; score: number }>()
  for (const { iteration: number, payload } of await eventsOf('pole')) {
    if (number !== 2 || payload.case !== 'judged' || !/\/train\/members\/[^/]+$/.test(payload.value.subject)) continue
    const [member, step] = [idOf(payload.value.subject), Number(payload.value.envStep) || Infinity]
    if (step >= (judged.get(member)?.step ?? 0)) judged.set(member, { step, score: payload.value.judgment!.score })
  }
  expect(judged.size).toBe(2)
  expect(await lastValues("judge's score")).toEqual(Object.fromEntries([...judged].map(([member, { score }]) => [member, short(score)])))
  const metrics = new Map<string, Record<string, number>>()
  for (const event of await eventsOf('pole')) {
    if (event.iteration !== 2 || event.payload.case !== 'progress') continue
    for (const member of event.payload.value.members) metrics.set(idOf(member.name), { ...metrics.get(idOf(member.name)), ...member.metrics })
  }
  const last = (name: string) => Object.fromEntries([...metrics].map(([member, values]) => [member, short(values[name]!)]))
  expect(await lastValues('approximate KL divergence')).toEqual(last('approx_kl'))
  expect(await lastValues('value loss')).toEqual(last('value_loss'))
  const others = Object.keys(Object.values(Object.fromEntries(metrics))[0]!).filter((name) => !name.startsWith('term/'))
  const chosen = others.includes('policy_loss') ? 'policy_loss' : others.at(-1)!
  const title = chosen.replaceAll('_', ' ')
  await page.getByRole('button', { name: /^Metrics: / }).click()
  await page.getByRole('textbox', { name: 'Search metrics' }).fill(title)
  await page.getByRole('checkbox', { name: title, exact: true }).check()
  await page.keyboard.press('Escape')
  expect(await lastValues(title)).toEqual(last(chosen))
  await page.reload()
  expect(await lastValues(title)).toEqual(last(chosen))
  // A stack ends at the sum of the terms of each sign.
  const terms = Object.entries(metrics.get('default-s0')!).filter(([name]) => name.startsWith('term/'))
  expect(terms.map(([name]) => name).sort()).toEqual(['term/alive', 'term/angle', 'term/place'])
  const sum = (sign: number) => terms.reduce((total, [, value]) => total + (Math.sign(value) === sign ? value : 0), 0)
  const ends = Object.values(await lastValues('reward terms stacked, default-s0'))
  expect(ends).toContain(short(sum(-1)))
  expect(ends).toContain(short(sum(1)))
})

test('the best score of a search ends at that of the API', async () => {
  await open('search', 'curves', 1)
  const { parameters } = await iteration('search', 1)
  expect(await lastValues('best score of the search')).toEqual({ best: short(parameters!.search.bestScore) })
})

test('each recorded episode has its return, its seed and its verdict', async () => {
  await open('pole', 'rollouts', 2)
  const all = (await members('pole', 2)).flatMap(({ name, evaluations }) => evaluations.at(-1)!.rollouts.map((rollout) => ({ owner: idOf(name), rollout })))
  expect(all.length).toBeGreaterThan(2)
  await expect(page.getByText(`${all.length} of `, { exact: false }).first()).toBeVisible()
  for (const { owner, rollout } of all) {
    const card = page.locator('section').filter({ has: page.getByRole('button', { name: `${owner} ${rollout.label} in 3D` }) }).last()
    await expect(card).toContainText(`return ${short(rollout.return ?? 0)}`)
    await expect(card).toContainText(`seed ${rollout.seed ?? 0}`)
    await expect(card).toContainText(`code ${fixed(rollout.judgment!.verdicts[0]!.score)}`)
    await expect(card).toContainText('video –')
  }
})

test('two videos play under one clock, with the recorded values under its cursor', async () => {
  const all = (await members('pole', 2)).map(({ evaluations }) => evaluations.at(-1)!.rollouts.find(({ label }) => label === 'median')!)
  for (const { artifact } of all) await server.call('GetRolloutVideo', { rollout: artifact }, 'ArtifactService')
  await open('pole', 'rollouts', 2)
  const player = panel('Videos, synchronised')
  const videos = player.locator('video')
  await expect.poll(() => videos.count()).toBeGreaterThan(1)
  const times = () => videos.evaluateAll((elements: HTMLVideoElement[]) => elements.map((element) => [element.currentTime, element.duration] as const))
  await expect.poll(async () => (await times()).every(([, length]) => length > 0)).toBe(true)
  await player.getByRole('switch', { name: 'measured fields' }).check()
  await player.getByRole('combobox', { name: 'Graphs' }).fill('pole_angle')
  await page.getByRole('option', { name: 'pole_angle', exact: true }).click()
  await page.keyboard.press('Escape')
  await player.getByRole('slider', { name: 'Time', exact: true }).focus()
  for (let step = 0; step < 4; step += 1) await page.keyboard.press('ArrowRight') // 0.02 s each
  await expect.poll(async () => (await times()).map(([now, length]) => Math.abs(now - Math.min(0.08, length)) < 0.03)).toEqual((await times()).map(() => true))
  const graph = player.getByRole('figure').filter({ has: page.getByRole('img', { name: /^pole angle over seconds/ }) })
  await graph.scrollIntoViewIfNeeded() // charts draw when they come near
  const readout = graph.locator('[data-readout]')
  await expect(readout).toHaveText(/^0\.08: .*\d/)
  const [, shown] = /^0\.08: (?:\u2068[^\u2069]*\u2069 )?(\S+)/.exec((await readout.textContent())!)!
  const source = await videos.first().getAttribute('src')
  const filmed = (await members('pole', 2)).flatMap(({ evaluations }) => evaluations.flatMap(({ rollouts }) => rollouts as (Rollout & { video?: string })[])).find(({ video }) => video !== undefined && source!.endsWith(video))!
  const recorded = execFileSync(join(ROOT, '.venv/bin/python'), ['-c', 'import sys, numpy as np; f = np.load(sys.argv[1]); print(float(f["field/pole_angle"][np.abs(f["field/time"] - 0.08).argmin()]))', join(server.folder, 'artifacts', filmed.artifact)], { encoding: 'utf8' })
  expect(shown).toBe(short(Number(recorded)))
  await player.getByRole('button', { name: 'Play' }).click()
  await page.waitForTimeout(400)
  const playing = await times()
  const shortest = Math.min(...playing.map(([, length]) => length))
  if (playing.every(([now]) => now < shortest - 0.2)) for (const [now] of playing) expect(Math.abs(now - playing[0]![0])).toBeLessThan(0.2)
  await player.getByRole('button', { name: 'Pause' }).click()
})

test('the code, its difference from another iteration, its terms and its judge', async () => {
  const [first, second] = [await iteration('pole', 1), await iteration('pole', 2)]
  await open('pole', 'code', 2)
  const shown = async (label: string) => (await page.getByRole('region', { name: label }).locator('.code-line > span:last-child').allTextContents()).join('\n').trim()
  expect(await shown('reward.py')).toBe(second.reward!.source.trim())
  for (const [term, meaning] of Object.entries(second.reward!.terms)) await expect(panel('Terms').getByRole('row').filter({ hasText: term })).toContainText(meaning)
  await expect(panel('Formula').locator('.katex').first()).toBeVisible()
  await page.getByText('difference', { exact: true }).click()
  const difference = page.getByRole('region', { name: 'difference from iteration 1' })
  const lines = (source: string) => new Set(source.split('\n'))
  const [before, after] = [lines(first.reward!.source), lines(second.reward!.source)]
  expect((await difference.locator('.added > span:last-child').allTextContents()).filter((line) => !before.has(line))).toEqual([...after].filter((line) => !before.has(line)))
  expect((await difference.locator('.removed > span:last-child').allTextContents()).filter((line) => !after.has(line))).toEqual([...before].filter((line) => !after.has(line)))
  await page.getByText('judge', { exact: true }).click()
  await expect(page.getByRole('region', { name: 'judge.py' })).toBeVisible()
  expect(await shown('judge.py')).toBe(readFileSync(join(server.folder, 'artifacts/sessions/pole/iterations/1/judge.py'), 'utf8').trim())
})

test('judgments have their scores, intervals, criteria and evidence', async () => {
  await open('pole', 'judgment', 2)
  const { judgment } = await iteration('pole', 2)
  const all = await members('pole', 2)
  const check = async (within: Locator, of: Judgment) => {
    await expect(fact('Score', within)).toHaveText(fixed(of.score))
    await expect(fact('Judged by', within)).toHaveText(of.judgedBy)
    if (of.samples.length > 1) await expect(fact('95 % interval', within)).toHaveText(`${fixed(of.intervalLow)} to ${fixed(of.intervalHigh)}`)
    for (const { name, score } of of.criteria) await expect(within.getByRole('progressbar', { name: `${name}: ${fixed(score)}` })).toBeVisible()
    await expect(within).toContainText(of.diagnosis.replace(/\s+/g, ' ').slice(0, 60))
    for (const { evidence = {} } of of.verdicts) {
      for (const [name, value] of Object.entries(evidence)) await expect(within.getByRole('row').filter({ hasText: name.replaceAll('_', ' ') }).getByRole('cell').last()).toHaveText(short(value, 4))
    }
  }
  await check(panel('Iteration 2'), judgment)
  for (const member of all) await check(panel(new RegExp(`${idOf(member.name)}$`)), member.judgment!)
  expect(all[0]!.judgment!.verdicts.concat(judgment.verdicts).some(({ evidence }) => evidence !== undefined)).toBe(true)
})

test('the lineage has scores, intervals, changes and lessons', async () => {
  type Lineage = { nodes: { iteration: string; score: number; intervalLow?: number; intervalHigh?: number; plannedChange?: string; lesson?: string; author: string }[]; lessons: { text: string; tier: string }[] }
  const { nodes, lessons } = await get<Lineage>('GetLineage', { name: 'sessions/pole' })
  await open('pole', 'lineage', 2)
  const items = page.locator('.lineage > li')
  await expect(items).toHaveCount(2)
  for (const [index, node] of nodes.entries()) {
    const item = items.nth(index)
    await expect(item).toContainText(fixed(node.score))
    if (node.intervalLow !== undefined) await expect(item).toContainText(`(${fixed(node.intervalLow)} to ${fixed(node.intervalHigh)})`)
    await expect(item).toContainText(`by ${node.author}`)
    for (const text of [node.plannedChange, node.lesson]) if (text) await expect(item).toContainText(text)
  }
  await expect(items.nth(1)).toContainText('from iteration 1')
  expect(lessons).toHaveLength(1)
  await expect(panel('Lessons')).toContainText(lessons[0]!.text)
  await expect(panel('Lessons')).toContainText(lessons[0]!.tier.split('_').at(-1)!.toLowerCase())
  const graph = page.getByRole('region', { name: 'Graph of the lineage' })
  for (const { iteration: name, score } of nodes) await expect(graph.getByText(`Iteration ${idOf(name)}`).locator('xpath=../..')).toContainText(fixed(score))
})

test('conversations have their tokens and dollars', async () => {
  await open('pole', 'conversation', 1)
  const { cost, costByRole } = await session('pole')
  const rows = panel('Cost by role').getByRole('row')
  await expect(rows).toHaveCount(2 + Object.keys(costByRole).length)
  for (const [role, of] of [...Object.entries(costByRole), ['all', cost] as const]) {
    const cells = rows.filter({ has: page.getByRole('cell', { name: role.replaceAll('_', ' '), exact: true }) }).getByRole('cell')
    await expect(cells).toHaveText([role.replaceAll('_', ' '), of.requests, compact(BigInt(of.inputTokens ?? 0)), compact(BigInt(of.outputTokens ?? 0)), dollars(of)])
  }
  const replies = (await eventsOf('pole')).filter(({ payload }) => payload.case === 'agentReplied')
  await expect(page.locator('.reply')).toHaveCount(replies.length)
  await page.getByText('transcripts', { exact: true }).click()
  await page.getByRole('combobox', { name: 'Conversation' }).click()
  await page.getByRole('option', { name: /^iteration 2, reviser/ }).click()
  // Two replies of 100 tokens in and 50 out, as the provider counts them.
  await expect(page.getByText(/^200 tokens in, 100 out, \$0\.0\d+$/)).toBeVisible()
  await expect(page.locator('.transcript').filter({ hasText: 'get_scores' }).first()).toBeVisible()
  await expect(page.locator('.transcript').last()).toContainText('Take the angle as a cost.')
})

test('events are all that the session recorded', async () => {
  await open('pole', 'events', 2)
  const events = (await eventsOf('pole')).filter(({ payload }) => payload.case !== 'progress')
  const count = events.length
  await expect(page.getByText(`newest first, ${Math.min(500, count)} of ${count}`)).toBeVisible()
  const log = page.getByRole('log')
  const judged = events.findLast(({ payload, iteration: number }) => payload.case === 'judged' && number === 2)!.payload
  await expect(log).toContainText(`: ${fixed((judged.value as { judgment?: { score: number } }).judgment!.score)}`)
  await expect(log).toContainText(/first proposal|exhausted: /)
})

test('files are those of the store, and a download is whole', async () => {
  await open('pole', 'artifacts', 2)
  const { artifacts } = await get<{ artifacts: { key: string; size: string }[] }>('ListArtifacts', { prefix: 'sessions/pole/', pageSize: 1000 }, 'ArtifactService')
  await expect(page.getByText(new RegExp(`^${artifacts.length} files, `))).toBeVisible()
  const key = artifacts.find((entry) => entry.key.endsWith('iterations/2/reward.py'))!.key
  await page.getByRole('textbox', { name: 'Search files' }).fill('iterations/2/reward.py')
  const rows = panel('Files').getByRole('row')
  await expect(rows).toHaveCount(2)
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('link', { name: 'Download iterations/2/reward.py' }).click()])
  expect(readFileSync(await download.path(), 'utf8')).toBe((await iteration('pole', 2)).reward!.source)
  expect(readFileSync(join(server.folder, 'artifacts', key), 'utf8')).toBe((await iteration('pole', 2)).reward!.source)
})

test('a session is copied as the command that starts it again', async () => {
  await open('pole', 'overview', 2)
  await page.getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Copy as a command' }).click()
  const command = await page.evaluate(() => navigator.clipboard.readText())
  for (const part of ["dressage run 'balance the pole'", '--env InvertedPendulum-v5', `--model ${MODEL}`, '--iterations 2', '--seeds 2', '--steps 4096', '--video none', '--set evaluations=2']) expect(command).toContain(part)
})

test('the parameters of a policy and the candidates of a search have their values', async () => {
  await open('search', 'code', 1)
  const { parameters } = await iteration('search', 1)
  const table = page.getByRole('table', { name: /^10 parameters between/ })
  await expect(table).toHaveAccessibleName(`10 parameters between ${short(Math.min(...parameters!.values))} and ${short(Math.max(...parameters!.values))}`)
  const cells = (await table.getByRole('cell').allTextContents()).toSorted()
  expect(cells).toEqual(parameters!.values.map((value) => short(value)).toSorted())
  await open('written', 'code', 1)
  const { code } = await iteration('written', 1)
  const rows = page.getByRole('table', { name: 'Candidates' }).getByRole('row')
  await expect(rows).toHaveCount(1 + code!.candidates.length)
  const best = code!.candidates.map((entry, index) => ({ ...entry, number: index + 1 })).toSorted((a, b) => (b.meanReturn ?? Number.NEGATIVE_INFINITY) - (a.meanReturn ?? Number.NEGATIVE_INFINITY))
  for (const [index, { number, meanReturn }] of best.entries()) {
    await expect(rows.nth(index + 1).getByRole('cell').nth(0)).toHaveText(String(number))
    await expect(rows.nth(index + 1).getByRole('cell').nth(1)).toHaveText(meanReturn === undefined ? '–' : short(meanReturn))
  }
  await expect(rows.filter({ hasText: 'chosen' }).getByRole('cell').first()).toHaveText(String(code!.chosen))
  await page.getByRole('button', { name: 'show candidate 2' }).click()
  expect((await page.getByRole('region', { name: 'candidate 2' }).locator('.code-line > span:last-child').allTextContents()).join('\n').trim()).toBe(code!.candidates[1]!.source!.trim())
})

test('the spend on models is the sum over sessions, by model and owner', async () => {
  const { sessions } = await get<{ sessions: Session[] }>('ListSessions', {})
  const paid = sessions.filter(({ spec, cost }) => spec.model === MODEL && Number(cost?.requests ?? 0) > 0)
  expect(paid).toHaveLength(1)
  const { cost, owner } = paid[0]!
  await page.goto(`${server.base}cluster`)
  const row = panel('Spend on models').getByRole('row')
  const texts = (key: string) => [key, '1', cost.requests, compact(BigInt(cost.inputTokens!) + BigInt(cost.outputTokens!)), `$${fixed(cost.dollars)}`]
  await expect(row.filter({ hasText: MODEL }).getByRole('cell')).toContainText(texts(MODEL))
  await panel('Spend on models').getByText('owner', { exact: true }).click()
  await expect(row.filter({ hasText: owner }).getByRole('cell').first()).toHaveText(owner)
  const { pools } = await get<{ pools: { name: string; cores: number }[] }>('ListPools', {})
  for (const { name, cores } of pools) await expect(panel(new RegExp(`^Pool ${name}`))).toContainText(`${cores} ${cores === 1 ? 'core' : 'cores'} a run`)
  expect(pools.length).toBeGreaterThan(0)
})

test('the plan is the estimate of the API, and what starts is the form', async () => {
  await page.goto(`${server.base}new`)
  await choose(page, 'Environment', 'Hopper-v5')
  await page.getByRole('textbox', { name: 'Intent' }).fill('hop forward')
  await page.getByRole('textbox', { name: 'Model' }).fill(MODEL)
  await page.getByRole('switch', { name: 'Approve' }).check()
  await page.getByRole('button', { name: 'Limits and training' }).click()
  for (const [field, value] of [['Iterations', '4'], ['Budget dollars', '2.5'], ['Budget minutes', '30'], ['Threshold', '0.9'], ['Seeds', '2'], ['Steps', '50000']] as const) await page.getByRole('textbox', { name: field, exact: true }).fill(value)
  const spec = { intent: 'hop forward', environment: 'environments/Hopper-v5', model: MODEL, approveBeforeEvaluation: true, maxIterations: 4, passThreshold: 0.9, budget: { dollars: 2.5, wallTime: '1800s' }, reward: { seeds: 2, maxStepsPerMember: '50000' } }
  type Estimate = { minutesPerIteration: number; mostMinutesPerIteration?: number; envStepsPerIteration: string; leastModelCallsPerIteration: number; mostModelCallsPerIteration: number; leastDollarsPerIteration: number; mostDollarsPerIteration: number; goal: string }
  const estimate = await get<Estimate>('EstimateSession', { spec })
  const plan = panel('Plan')
  await expect(plan).toContainText(MODEL)
  await expect(fact('Iterations at most', plan)).toHaveText('4')
  await expect(fact('Time of one', plan)).toHaveText(duration(estimate.minutesPerIteration * 60))
  await expect(fact('All at most', plan)).toHaveText(duration(Math.max(estimate.minutesPerIteration, estimate.mostMinutesPerIteration ?? 0) * 240))
  await expect(fact('Steps of one', plan)).toHaveText(compact(BigInt(estimate.envStepsPerIteration)))
  await expect(fact('Model calls of one', plan)).toHaveText(`${estimate.leastModelCallsPerIteration} to ${estimate.mostModelCallsPerIteration}`)
  await expect(fact('Cost of one', plan)).toHaveText(`$${fixed(estimate.leastDollarsPerIteration)} to $${fixed(estimate.mostDollarsPerIteration)}`)
  await expect(fact('Goal', plan)).toHaveText(estimate.goal)
  await expect(page.locator('.command')).toHaveText(`dressage run 'hop forward' --env Hopper-v5 --model ${MODEL} --iterations 4 --approve --seeds 2 --steps 50000 --threshold 0.9 --budget-dollars 2.5 --budget-minutes 30`)
  const card = await get<{ exampleIntents: string[] }>('GetEnvironment', { name: 'environments/Hopper-v5' }, 'EnvironmentService')
  await expect(page.getByRole('checkbox', { checked: true })).toHaveCount(1)
  expect(await page.getByText('Examples for this environment').locator('xpath=following-sibling::*').locator('label').allTextContents()).toEqual(card.exampleIntents.slice(0, 12))
  await page.getByRole('button', { name: 'Start the session' }).click()
  await expect(page.getByRole('heading', { name: 'hop forward' })).toBeVisible()
  const id = idOf(new URL(page.url()).pathname)
  expect((await session(id)).spec).toMatchObject(spec)
  await server.call('DeleteSession', { name: `sessions/${id}`, force: true })
})

test('phases, speed and state change while they are watched, in the session and in the list', async () => {
  test.setTimeout(400_000)
  const reward = { seeds: 1, stepsPerMember: '300000', maxStepsPerMember: '300000', earlyStop: false }
  await server.call('CreateSession', { sessionId: 'live', spec: { intent: 'stand upright', environment: 'environments/Hopper-v5', model: 'template/v1', approveBeforeEvaluation: true, reward } })
  await page.goto(server.base)
  const row = page.getByRole('row').filter({ has: page.getByLabel('Select live') })
  await expect(row).toContainText('needs approval', { timeout: 120_000 })
  const other = await seen.context.newPage()
  await other.goto(`${server.base}sessions/live`)
  const phases = other.getByRole('list', { name: 'Phases of iteration 1' })
  const current = phases.locator('[aria-current=step]')
  await expect(phases).toContainText('Iteration 1 of ')
  await expect(current).toHaveText('approve')
  await server.call('ApproveSession', { name: 'sessions/live', iteration: 1 })
  await expect(current).toHaveText('evaluate')
  await expect(row).toContainText('iteration 1, evaluate')
  await expect(phases.getByRole('listitem').filter({ hasText: /^(propose|check|approve)$/ }).locator('svg')).toHaveCount(3)
  await expect(phases).toContainText(/steps\/s, about \d/, { timeout: 120_000 })
  await expect(other.getByRole('progressbar', { name: /^Training: \d+ percent$/ })).toBeVisible()
  await server.call('CancelSession', { name: 'sessions/live' })
  await expect(row).toContainText('cancelled')
  await expect(other.getByRole('button', { name: 'Resume' })).toBeVisible()
  await other.close()
})

test('several sessions are deleted and restored at once', async () => {
  await page.goto(server.base)
  for (const id of ['search', 'written']) await page.getByLabel(`Select ${id}`).check()
  await page.getByRole('button', { name: 'Delete' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
  await expect(page.getByText('2 deleted')).toBeVisible()
  const deleted = async (id: string) => (await get<{ deleteTime?: string }>('GetSession', { name: `sessions/${id}` })).deleteTime !== undefined
  expect([await deleted('pole'), await deleted('search'), await deleted('written')]).toEqual([false, true, true])
  await page.getByRole('button', { name: 'Trash' }).click()
  for (const id of ['search', 'written']) await page.getByLabel(`Select ${id}`).check()
  await page.getByRole('button', { name: 'Restore' }).click()
  await expect(page.getByText('2 restored')).toBeVisible()
  expect([await deleted('search'), await deleted('written')]).toEqual([false, false])
})
