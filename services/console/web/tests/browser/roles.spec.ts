// A viewer reads everything and changes nothing; a person who logs out or has no token reads nothing.
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect, test } from '@playwright/test'

import { Server } from './server'
import { barriersOf, choose, type Visit, visit } from './visit'

const VIEWER = 'token-of-a-viewer'
const REFUSED = /vera \(viewer\) may not call/
const folder = mkdtempSync(join(tmpdir(), 'dressage-principals-'))
let server: Server
let seen: Visit

test.describe.configure({ mode: 'serial' })

test.beforeAll(async ({ browser }) => {
  test.setTimeout(200_000)
  const file = join(folder, 'principals.toml')
  const digest = createHash('sha256').update(VIEWER).digest('hex')
  writeFileSync(file, `[[principals]]\nname = "vera"\nrole = "viewer"\ntoken_sha256 = "${digest}"\n`)
  server = await Server.start({ DRESSAGE_ORCHESTRATOR_PRINCIPALS_FILE: file })
  const spec = { intent: 'hop forward', environment: 'environments/Hopper-v5', approveBeforeEvaluation: true, reward: { seeds: 1, stepsPerMember: '2048' } }
  await server.call('CreateSession', { spec, sessionId: 'others-1' })
  seen = await visit(browser)
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
  rmSync(folder, { recursive: true, force: true })
})

test.afterEach(() => {
  expect(seen.problems.splice(0)).toEqual([])
})

test('a viewer logs in and reads a session', async () => {
  const { page } = seen
  await page.goto(`${server.base}sessions/others-1`)
  await page.getByLabel('Token', { exact: true }).fill(VIEWER)
  await page.getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByRole('heading', { name: 'hop forward' })).toBeVisible()
  await expect(page.getByText('Iteration 1 waits for your approval')).toBeVisible({ timeout: 90_000 })
  await page.getByRole('tab', { name: 'events' }).click()
  await expect(page.getByRole('log')).toContainText('running')
})

test('a viewer may not approve, steer, cancel or delete', async () => {
  const { page } = seen
  await page.getByRole('button', { name: 'Approve', exact: true }).click()
  await expect(page.getByText(REFUSED)).toBeVisible()
  expect(await barriersOf(page, 'a refused action')).toEqual([])
  await page.getByRole('tab', { name: 'overview' }).click()
  await page.getByRole('textbox', { name: 'Direction' }).fill('fall over')
  await page.getByRole('button', { name: 'Send', exact: true }).click()
  await expect(page.getByText('Not sent')).toBeVisible()
  await page.getByRole('button', { name: 'Cancel', exact: true }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel it' }).click()
  await expect(page.getByText('Not done').first()).toBeVisible()
  await page.goto(server.base)
  await page.getByRole('checkbox', { name: 'Select all' }).check()
  await page.getByRole('button', { name: 'Delete' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
  await expect(page.getByText('1 not deleted')).toBeVisible()
  const session = await server.call('GetSession', { name: 'sessions/others-1' })
  expect(session).toMatchObject({ state: 'SESSION_STATE_RUNNING', awaitingApproval: 1 })
  expect(session).not.toHaveProperty('deleteTime')
})

test('a viewer sees the plan of a new session and may not start it', async () => {
  const { page } = seen
  await page.goto(`${server.base}new`)
  await choose(page, 'Environment', 'CartPole-v1')
  await page.getByLabel('Intent').fill('balance the pole')
  await expect(page.getByText('Iterations at most').last()).toBeVisible()
  await page.getByRole('button', { name: 'Start the session' }).click()
  await expect(page.getByText(REFUSED)).toBeVisible()
  const listed = await server.call('ListSessions', {})
  expect(listed.sessions).toHaveLength(1)
})

test('after a person has logged out nothing is read, and nothing they wrote is left', async () => {
  const { page, context } = seen
  expect(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).toContain('balance the pole')
  await page.getByRole('button', { name: 'Log out' }).click()
  await expect(page.getByRole('button', { name: 'Log in' })).toBeVisible()
  expect(await page.evaluate(() => JSON.stringify({ ...sessionStorage }))).not.toContain('balance the pole')
  await page.goto(`${server.base}sessions/others-1`)
  await expect(page.getByRole('button', { name: 'Log in' })).toBeVisible()
  await expect(page.getByText('hop forward')).toBeHidden()
  const answer = await context.request.get(`${server.base}artifacts/sessions/others-1/iterations/1/proposal.json`)
  expect(answer.status()).toBe(401)
})
