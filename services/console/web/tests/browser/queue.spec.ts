// Sessions that wait for a place, before a server that runs one at a time.
import { expect, type Locator, test } from '@playwright/test'

import { Server } from './server'
import { barriersOf, logIn, visit, type Visit } from './visit'

const REASON = 'the server runs as many sessions as its setting max_running_sessions allows'
let server: Server
let seen: Visit

test.describe.configure({ mode: 'serial' })

test.beforeAll(async ({ browser }) => {
  test.setTimeout(200_000)
  server = await Server.start({ DRESSAGE_ORCHESTRATOR_MAX_RUNNING_SESSIONS: '1' })
  const reward = { seeds: 1, stepsPerMember: '2048' }
  const create = (sessionId: string, intent: string) =>
    server.call('CreateSession', { sessionId, spec: { intent, environment: 'environments/Hopper-v5', approveBeforeEvaluation: true, reward } })
  // The first one waits for a person and keeps its place meanwhile.
  await create('first', 'hop forward')
  await expect.poll(async () => (await server.call('GetSession', { name: 'sessions/first' })).awaitingApproval, { timeout: 120_000 }).toBe(1)
  await create('second', 'jump upright')
  await create('third', 'hop backward')
  seen = await visit(browser)
  await logIn(seen.page, server.url)
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
})

test.afterEach(() => {
  expect(seen.problems.splice(0)).toEqual([])
})

const row = (intent: string): Locator => seen.page.getByRole('row', { name: new RegExp(intent) })

test('the list states the place of each session that waits', async () => {
  await expect(row('jump upright')).toContainText(/pending\s*place 1 of 2/i)
  await expect(row('hop backward')).toContainText(/pending\s*place 2 of 2/i)
  await expect(row('hop forward')).not.toContainText('place')
  await expect(row('jump upright').getByText('place 1 of 2')).toHaveAttribute('title', REASON)
  expect(await barriersOf(seen.page, 'a queue in the list')).toEqual([])
})

test('the cluster lists them in the order of their places, with the reason', async () => {
  const { page } = seen
  await page.getByRole('link', { name: 'Cluster', exact: true }).click()
  const waiting = page.getByRole('table', { name: 'Sessions that wait' }).getByRole('row')
  await expect(waiting).toContainText([/jump upright.*place 1 of 2/, /hop backward.*place 2 of 2/])
  await expect(waiting.first()).toContainText(REASON)
  expect(await barriersOf(page, 'a queue of the cluster')).toEqual([])
})

test('a session states its place, moves up and starts without a reload', async () => {
  const { page } = seen
  await page.goto(`${server.base}sessions/third`)
  const notice = page.getByRole('status').filter({ hasText: REASON })
  await expect(notice).toHaveText(`Waits in the queue, place 2 of 2: ${REASON}.`)
  expect(await barriersOf(page, 'a session that waits')).toEqual([])
  await server.call('CancelSession', { name: 'sessions/second' })
  await expect(notice).toHaveText(`Waits in the queue, place 1 of 1: ${REASON}.`)
  await server.call('CancelSession', { name: 'sessions/first' })
  await expect(notice).toBeHidden({ timeout: 60_000 })
  await expect(page.getByRole('list', { name: 'Phases of iteration 1' })).toBeVisible({ timeout: 60_000 })
})
