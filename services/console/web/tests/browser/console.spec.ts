// The page in a real browser before a real server, without a language model.
import { type BrowserContext, expect, type Page, test } from '@playwright/test'

import { Server } from './server'
import { barriersOf, choose, visit } from './visit'

let server: Server
let context: BrowserContext
let page: Page
let problems: string[] = []
const barriers: string[] = []

test.describe.configure({ mode: 'serial' })

test.beforeAll(async ({ browser }) => {
  test.setTimeout(200_000)
  server = await Server.start()
  ;({ context, page, problems } = await visit(browser))
})

test.afterAll(async () => {
  await context?.close()
  await server?.stop()
})

test.afterEach(() => {
  expect(problems.splice(0)).toEqual([])
})

async function accessible(what: string): Promise<void> {
  barriers.push(...(await barriersOf(page, what)))
}

test('asks for the token, and takes it from the address', { tag: '@quick' }, async () => {
  await page.goto(server.base)
  await page.getByLabel('Token', { exact: true }).fill('wrong')
  await page.getByRole('button', { name: 'Log in' }).click()
  await expect(page.getByText('The token is wrong.')).toBeVisible()
  await accessible('login')
  await page.goto('about:blank')
  await page.goto(server.url)
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible()
  expect(page.url()).not.toContain('token')
  expect(await page.evaluate(() => document.cookie)).toBe('')
  await expect(page.getByText('No sessions yet')).toBeVisible()
  await accessible('no sessions')
})

test('shows a plan before it starts a session, and the session waits for approval', { tag: '@quick' }, async () => {
  await page.getByRole('link', { name: 'New session' }).first().click()
  await choose(page, 'Environment', 'Hopper-v5')
  await page.getByText('hop forward', { exact: true }).first().click()
  await expect(page.getByText('Iterations at most').last()).toBeVisible()
  await page.getByRole('switch', { name: 'Approve' }).check()
  await page.getByRole('button', { name: 'Limits and training' }).click()
  await page.getByRole('textbox', { name: 'Seeds' }).fill('1')
  await page.getByRole('textbox', { name: 'Steps', exact: true }).fill('2048')
  await page.reload()
  // What was typed is still there, in the fields and in what they mean.
  await expect(page.getByRole('textbox', { name: 'Intent' })).toHaveValue('hop forward')
  await expect(page.getByRole('switch', { name: 'Approve' })).toBeChecked()
  await page.getByRole('button', { name: 'Limits and training' }).click()
  await expect(page.getByRole('textbox', { name: 'Steps', exact: true })).toHaveValue('2,048')
  await expect(page.locator('.command')).toContainText('--env Hopper-v5')
  await expect(page.getByText('no language model')).toBeVisible()
  await accessible('new session')
  await page.getByRole('button', { name: 'Start the session' }).click()
  await expect(page.getByRole('heading', { name: 'hop forward' })).toBeVisible()
  await expect(page.getByText('Iteration 1 waits for your approval')).toBeVisible({ timeout: 90_000 })
  await expect(page.locator('.code')).toContainText('def reward')
  const { sessions } = (await server.call('ListSessions', {})) as { sessions: { spec: object }[] }
  expect(sessions.map(({ spec }) => spec)).toEqual([expect.objectContaining({ intent: 'hop forward', approveBeforeEvaluation: true, reward: expect.objectContaining({ seeds: 1, stepsPerMember: '2048' }) })])
})

test('a started session leaves an empty form, and another one can start over', { tag: '@quick' }, async () => {
  await page.getByRole('link', { name: 'New session' }).first().click()
  await expect(page.getByRole('textbox', { name: 'Intent' })).toHaveValue('')
  await expect(page.getByRole('button', { name: 'Start over' })).toBeDisabled()
  await page.getByRole('textbox', { name: 'Intent' }).fill('hop back')
  await page.getByRole('button', { name: 'Start over' }).click()
  await expect(page.getByRole('textbox', { name: 'Intent' })).toHaveValue('')
  await page.goBack()
  await expect(page.getByText('Iteration 1 waits for your approval')).toBeVisible()
})

test('reads the session in all its parts', async () => {
  for (const tab of ['code', 'lineage', 'conversation', 'artifacts', 'events', 'judgment', 'rollouts', 'curves', 'overview']) {
    await page.getByRole('tab', { name: tab }).click()
    await expect(page.getByRole('tabpanel')).toBeVisible()
    await page.waitForTimeout(400)
    await accessible(tab)
  }
  await page.getByRole('tab', { name: 'conversation' }).click()
  await expect(page.getByText('reward author').first()).toBeVisible()
})

test('continues where it was when the server is killed and started again', async () => {
  await page.getByRole('tab', { name: 'overview' }).click()
  await page.getByRole('textbox', { name: 'Direction' }).fill('keep the torso upright')
  await page.getByRole('button', { name: 'Edit first' }).click()
  const proposal = page.getByRole('textbox', { name: /reward/i })
  const edited = `${await proposal.inputValue()}\n# my edit\n`
  await proposal.fill(edited)
  await page.getByRole('textbox', { name: 'Remarks' }).fill('looks right')
  await server.kill()
  await expect(page.getByText('reconnecting')).toBeVisible()
  await server.launch()
  await expect(page.getByText('reconnecting')).toBeHidden({ timeout: 60_000 })
  await page.reload()
  await expect(proposal).toHaveValue(edited)
  await expect(page.getByRole('textbox', { name: 'Remarks' })).toHaveValue('looks right')
  await expect(page.getByRole('textbox', { name: 'Direction' })).toHaveValue('keep the torso upright')
  await page.getByRole('button', { name: 'Send', exact: true }).click()
  await expect(page.getByText('follows your direction')).toBeVisible()
  await page.getByRole('tab', { name: 'events' }).click()
  await expect(page.getByRole('log').getByText('keep the torso upright')).toBeVisible()
  await page.getByRole('button', { name: 'Check my version' }).click()
  await expect(page.getByRole('alert', { name: /waits for your approval/ }).locator('.code')).toContainText('# my edit')
  await expect(page.getByRole('textbox', { name: 'Remarks' })).toHaveValue('looks right')
  await page.getByRole('button', { name: 'Approve', exact: true }).click()
  await expect(page.getByRole('log').getByText('granted for iteration 1')).toBeVisible()
  await expect(page.getByText('Iteration 1 waits for your approval')).toBeHidden()
  await page.getByRole('tab', { name: 'code' }).click()
  await expect(page.locator('.code').first()).toContainText('# my edit')
  expect(await page.evaluate(() => Object.keys(sessionStorage).filter((key) => key.startsWith('dressage-draft')))).toEqual([])
})

test('a search without a model is watched to its end', async () => {
  await page.goto(`${server.base}new`)
  await choose(page, 'Environment', 'CartPole-v1')
  await page.getByLabel('Intent').fill('balance the pole')
  await page.getByText('parameters', { exact: true }).click()
  await page.getByRole('button', { name: 'Start the session' }).click()
  await expect(page.getByText('best score of the search').first()).toBeVisible({ timeout: 150_000 })
  await expect(page.getByText('succeeded').first()).toBeVisible({ timeout: 150_000 })
  await page.getByRole('tab', { name: 'code' }).click()
  await expect(page.getByRole('table', { name: /parameters between/ })).toBeVisible()
})

test('hostile strings are shown as text', { tag: '@quick' }, async () => {
  const hostile = '<img src=x onerror="alert(1)"><script>alert(2)</script> \u202Eevil\u202C ${7*7} {{7*7}} [x](javascript:alert(3)) '
  const intent = hostile + 'long '.repeat(1500)
  const spec = { intent: intent.slice(0, 7900), environment: 'environments/CartPole-v1', parameters: { episodeBudget: '20' } }
  await server.call('CreateSession', { spec, sessionId: 'hostile-1' })
  await page.goto(server.base)
  await expect(page.getByText('<img src=x onerror').first()).toBeVisible()
  await page.goto(`${server.base}sessions/hostile-1`)
  await expect(page.getByRole('heading', { name: /<img src=x/ })).toBeVisible()
  for (const tab of ['events', 'conversation', 'code', 'artifacts']) {
    await page.getByRole('tab', { name: tab }).click()
    await page.waitForTimeout(300)
  }
  expect(await page.locator('img[src="x"]').count()).toBe(0)
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
  expect(overflow).toBeLessThanOrEqual(0)
})

test('filters, deletes and restores by the keyboard', { tag: '@quick' }, async () => {
  await page.goto(server.base)
  await page.getByRole('textbox', { name: 'Search' }).fill('hop forward')
  await expect(page.getByRole('table', { name: 'Sessions' }).getByRole('row')).toHaveCount(2)
  expect(page.url()).toContain('q=hop')
  await page.reload()
  await expect(page.getByRole('table', { name: 'Sessions' }).getByRole('row')).toHaveCount(2)
  await accessible('sessions')
  await page.getByRole('checkbox', { name: 'Select all' }).focus()
  await page.keyboard.press('Space')
  await page.getByRole('button', { name: 'Delete' }).focus()
  await page.keyboard.press('Enter')
  await expect(page.getByRole('dialog').getByRole('button', { name: 'Delete' })).toBeFocused()
  await page.keyboard.press('Enter')
  await expect(page.getByText('1 deleted')).toBeVisible()
  await page.getByRole('button', { name: 'Trash' }).click()
  await expect(page.getByText('1 deleted session', { exact: true })).toBeVisible()
  await page.getByRole('checkbox', { name: 'Select all' }).check()
  await page.getByRole('button', { name: 'Restore' }).click()
  await expect(page.getByText('1 restored')).toBeVisible()
})

test('is usable at the width of a phone', { tag: '@quick' }, async () => {
  const phone = await context.newPage()
  await phone.setViewportSize({ width: 390, height: 844 })
  for (const path of ['', 'new', 'sessions/hostile-1', 'sessions/hostile-1?tab=events']) {
    await phone.goto(server.base + path)
    await phone.waitForTimeout(1500)
    const overflow = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    expect.soft(overflow, path).toBeLessThanOrEqual(0)
  }
  await phone.close()
})

test('tabs share one stream for each session', async () => {
  const more = await Promise.all(Array.from({ length: 7 }, () => context.newPage()))
  await Promise.all(more.map((tab) => tab.goto(`${server.base}sessions/hostile-1?tab=events`)))
  for (const tab of more) await expect(tab.getByRole('log')).toContainText('running')
  await page.goto(server.base)
  await expect(page.getByRole('table', { name: 'Sessions' })).toBeVisible()
  for (const tab of more) await tab.close()
})

test('asks another site nothing', { tag: '@quick' }, async () => {
  const hosts = new Set<string>()
  page.on('request', (request) => hosts.add(new URL(request.url()).host))
  await page.goto(`${server.base}sessions/hostile-1`)
  await page.waitForTimeout(1500)
  expect([...hosts]).toEqual([new URL(server.base).host])
})

test('has no barrier that axe finds, in either scheme', () => {
  expect(barriers).toEqual([])
})
