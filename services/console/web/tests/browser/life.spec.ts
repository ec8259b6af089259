// A session from its start without a model to its end: watched live to its video, labelled, steered, continued from an earlier
// iteration, deleted and restored. And a program, whose search needs no model either.
import { expect, test } from '@playwright/test'

import { Server } from './server'
import { barriersOf, choose, logIn, visit, type Visit } from './visit'

let server: Server
let seen: Visit
const barriers: string[] = []

test.describe.configure({ mode: 'serial' })

test.beforeAll(async ({ browser }) => {
  test.setTimeout(200_000)
  server = await Server.start()
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

test('a session starts without a model, and its curves are live', async () => {
  const { page } = seen
  test.setTimeout(400_000)
  await page.goto(`${server.base}new`)
  await choose(page, 'Environment', 'InvertedPendulum-v5')
  await page.getByLabel('Intent').fill('balance the pole')
  await page.getByRole('button', { name: 'Limits and training' }).click()
  await page.getByRole('textbox', { name: 'Seeds' }).fill('1')
  await page.getByRole('textbox', { name: 'Steps', exact: true }).fill('4096')
  await page.getByRole('textbox', { name: 'Iterations', exact: true }).fill('3')
  await page.getByRole('switch', { name: 'Approve' }).check()
  await page.getByRole('button', { name: 'Start the session' }).click()
  await expect(page.getByText('Iteration 1 waits for your approval')).toBeVisible({ timeout: 120_000 })
  await page.getByRole('button', { name: 'Approve', exact: true }).click()
  await page.getByRole('tab', { name: 'curves' }).click()
  await expect(page.getByRole('img', { name: /over environment steps/ }).first()).toBeVisible({ timeout: 180_000 })
  await expect(page.getByText('Iteration 2 waits for your approval')).toBeVisible({ timeout: 180_000 })
})

test('a person scores a rollout', async () => {
  const { page } = seen
  await page.goto(page.url().replace(/\?.*|$/, '?tab=rollouts&iteration=1'))
  await page.getByRole('button', { name: 'score it yourself' }).first().click()
  await page.getByRole('textbox', { name: 'Your score, 0 to 1' }).fill('0.7')
  await page.getByRole('textbox', { name: 'Remarks', exact: true }).fill('steady <b>and</b> calm')
  await page.getByRole('button', { name: 'Record' }).click()
  await expect(page.getByText(/Recorded\. 1 labelled rollouts/)).toBeVisible()
  await expect(page.getByText('people 0.70').first()).toBeVisible()
  barriers.push(...(await barriersOf(page, 'a scored rollout')))
})

test('any rollout is rendered on request, and stays', async () => {
  const { page } = seen
  const card = page.locator('section', { has: page.getByText(/^default-s0 p90/) }).last()
  await card.getByRole('button', { name: /^Video of/ }).click()
  const film = card.getByLabel(/^Video of default-s0/)
  await expect(film).toBeVisible({ timeout: 120_000 })
  await expect.poll(() => film.evaluate((element: HTMLVideoElement) => element.duration)).toBeGreaterThan(0.1)
  barriers.push(...(await barriersOf(page, 'a rollout with its video')))
  await page.reload()
  await expect(page.locator('video[src*="/videos/"]').first()).toBeVisible()
})

test('the next iteration starts from an earlier one, with a direction', async () => {
  const { page } = seen
  await page.getByRole('tab', { name: 'lineage' }).click()
  await page.getByRole('button', { name: 'start the next from here' }).first().click()
  await expect(page.getByText('The next iteration starts from iteration 1.')).toBeVisible()
  await page.getByRole('tab', { name: 'overview' }).click()
  await page.getByRole('textbox', { name: 'Direction' }).fill('less effort')
  await page.getByRole('button', { name: 'Send', exact: true }).click()
  await expect(page.getByText('follows your direction')).toBeVisible()
  await page.getByRole('tab', { name: 'events' }).click()
  await expect(page.getByRole('log').getByText('less effort')).toBeVisible()
  await page.getByRole('button', { name: 'Approve', exact: true }).click()
  await expect(page.getByText('Iteration 3 waits for your approval')).toBeVisible({ timeout: 180_000 })
  await page.getByRole('tab', { name: 'lineage' }).click()
  await expect(page.getByRole('listitem').filter({ hasText: 'from iteration 1' })).toHaveCount(2)
  const graph = page.getByRole('region', { name: 'Graph of the lineage' })
  await expect(graph.locator('.react-flow__edge')).toHaveCount(2)
  await graph.getByText('Iteration 2', { exact: true }).click()
  await expect(page.getByRole('listitem').filter({ hasText: 'shown' })).toContainText('Iteration 2')
  barriers.push(...(await barriersOf(page, 'lineage')))
})

test('it is watched to its end and its video', async () => {
  const { page } = seen
  test.setTimeout(400_000)
  await page.getByRole('button', { name: 'Approve', exact: true }).click()
  await page.getByRole('tab', { name: 'overview' }).click()
  const video = page.getByLabel('Video of the best policy')
  await expect(video).toBeVisible({ timeout: 240_000 })
  await expect.poll(() => video.evaluate((element: HTMLVideoElement) => element.readyState)).toBeGreaterThan(0)
  // Seeking is a request for a part of the file.
  const at = await video.evaluate((element: HTMLVideoElement) => {
    element.currentTime = element.duration / 2
    return new Promise<number>((done) => element.addEventListener('seeked', () => done(element.currentTime), { once: true }))
  })
  expect(at).toBeGreaterThan(0)
  barriers.push(...(await barriersOf(page, 'overview with a video')))
})

test('a session is deleted and restored from its own page', async () => {
  const { page } = seen
  const address = page.url().replace(/\?.*/, '')
  await page.getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Delete' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
  await expect(page.getByText('No sessions yet')).toBeVisible()
  await page.goto(address)
  await expect(page.getByText('in the trash')).toBeVisible()
  await page.getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Restore' }).click()
  await expect(page.getByText('in the trash')).toBeHidden()
})

test('a program is searched without a model, and its code shown', async () => {
  const { page } = seen
  test.setTimeout(300_000)
  await page.goto(`${server.base}new`)
  await choose(page, 'Environment', 'karel/StairClimber')
  await page.getByLabel('Intent').fill('climb the stairs to the marker')
  await page.getByText('program', { exact: true }).click()
  await page.getByRole('textbox', { name: 'Iterations', exact: true }).fill('1').catch(() => null)
  await page.getByRole('button', { name: 'Start the session' }).click()
  await expect(page.getByRole('heading', { name: 'climb the stairs' })).toBeVisible()
  await page.getByRole('tab', { name: 'curves' }).click()
  await expect(page.getByRole('img', { name: /best score of the search/ })).toBeVisible({ timeout: 180_000 })
  barriers.push(...(await barriersOf(page, 'curves of a search')))
  await page.getByRole('tab', { name: 'code' }).click()
  await expect(page.locator('.code').first()).toContainText('run', { timeout: 180_000 })
  await expect(page.getByText('succeeded').first()).toBeVisible({ timeout: 180_000 })
  const grid = page.getByRole('application', { name: /^Grid of the episode/ })
  await expect(grid).toBeVisible()
  const status = page.getByRole('status').filter({ hasText: /^Step \d+ of/ })
  await expect(status).toContainText(/^Step 0 of \d+: start/)
  await grid.focus()
  await page.keyboard.press('.')
  await expect(status).toContainText(/^Step 1 of \d+, line \d+: /)
  const executing = page.locator('[aria-current=step]')
  await expect(executing).toHaveCount(1)
  const operation = /: (\w+)\(/.exec((await status.textContent())!)![1]!
  await expect(executing).toContainText(operation)
  await page.getByText('DSL', { exact: true }).click()
  await expect(executing).toContainText(operation)
  barriers.push(...(await barriersOf(page, 'a program with its executing line')))
  await grid.focus()
  await page.keyboard.press('End')
  await expect(status).toContainText(/Return 1\. the task ended the episode/)
  await page.keyboard.press('Home')
  await page.keyboard.press(' ')
  await expect(page.getByRole('button', { name: 'Pause the episode' })).toBeVisible()
  await expect(status).toContainText(/^Step [3-9]/)
})

test('an intent of 100 kB is refused in words and leaves the page usable', async () => {
  const { page } = seen
  await page.goto(`${server.base}new`)
  const field = page.getByLabel('Intent')
  await expect(field).toBeVisible()
  await field.fill(`<script>alert(1)</script>${'x\u202e'.repeat(50_000)}`)
  await page.getByRole('button', { name: 'Start the session' }).click()
  await expect(page.getByText(/8000/).first()).toBeVisible()
  await field.fill('balance the pole')
  await expect(page.locator('.command')).toContainText('balance the pole')
  expect(await page.locator('script:not([src])').count()).toBe(0)
})

test('has no barrier that axe finds in any of these states', () => {
  expect(barriers).toEqual([])
})
