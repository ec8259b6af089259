// The rollouts of a real session in 3D: MuJoCo's WebAssembly under the page's policy, by software rendering.
import { expect, type Page, test } from '@playwright/test'

import { Server } from './server'
import { barriersOf, type Visit, visit } from './visit'

let server: Server
let seen: Visit
let page: Page

test.describe.configure({ mode: 'serial' })

async function finished(id: string): Promise<void> {
  await expect(async () => {
    const { state, failure } = await server.call('GetSession', { name: `sessions/${id}` })
    expect(state, JSON.stringify(failure ?? {})).toMatch(/SUCCEEDED|EXHAUSTED/)
  }).toPass({ timeout: 200_000, intervals: [2_000] })
}

test.beforeAll(async ({ browser }) => {
  test.setTimeout(400_000)
  server = await Server.start()
  const reward = { seeds: 2, stepsPerMember: '2048', evaluations: 1, checkpointEpisodes: 3 }
  await server.call('CreateSession', { sessionId: 'hop', spec: { intent: 'hop forward', environment: 'environments/Hopper-v5', maxIterations: 1, reward } })
  await finished('hop')
  const parameters = { episodeBudget: '20' }
  await server.call('CreateSession', { sessionId: 'pole', spec: { intent: 'balance the pole', environment: 'environments/CartPole-v1', maxIterations: 1, parameters } })
  await finished('pole')
  seen = await visit(browser)
  page = seen.page
  await page.goto(server.url)
  await expect(page.getByRole('heading', { name: 'Sessions' })).toBeVisible()
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
})

const view = () => page.getByRole('application', { name: /3D view/ })
const slider = () => page.getByRole('slider', { name: 'Time in 3D' })
const time = async () => Number(await slider().getAttribute('aria-valuenow'))
const drawn = async () => Number(await view().locator('canvas').getAttribute('data-drawn'))

/** How many colours a picture of the view has: an empty one has one. */
async function colours(): Promise<number> {
  const picture = (await view().screenshot()).toString('base64')
  return page.evaluate(async (data) => {
    const image = new Image()
    image.src = `data:image/png;base64,${data}`
    await image.decode()
    const canvas = document.createElement('canvas')
    canvas.width = image.width
    canvas.height = image.height
    const pen = canvas.getContext('2d')!
    pen.drawImage(image, 0, 0)
    return new Set(new Uint32Array(pen.getImageData(0, 0, image.width, image.height).data.buffer)).size
  }, picture)
}

test('nothing of MuJoCo is loaded before somebody asks for 3D', async () => {
  const loaded: string[] = []
  const note = (request: { url: () => string }) => loaded.push(request.url())
  page.on('request', note)
  await page.goto(`${server.base}sessions/hop?tab=rollouts`)
  await expect(page.getByRole('button', { name: 'Show in 3D' })).toBeVisible()
  await page.waitForTimeout(500)
  expect(loaded.filter((url) => /mujoco|wasm|Scene3D/.test(url))).toEqual([])
  await page.getByRole('button', { name: 'Show in 3D' }).click()
  await expect(view().locator('canvas[data-drawn]')).toBeVisible({ timeout: 60_000 })
  expect(loaded.some((url) => url.endsWith('.wasm'))).toBe(true)
  expect(loaded.map((url) => new URL(url).host)).toEqual(loaded.map(() => new URL(server.base).host))
  page.off('request', note)
  expect(await colours()).toBeGreaterThan(100)
})

test('plays, steps and turns by the keyboard', async () => {
  await view().focus()
  expect(await time()).toBe(0)
  await page.keyboard.press('.')
  await page.keyboard.press('.')
  await expect.poll(time).toBeCloseTo(0.016, 3) // Hopper's states are 8 ms apart
  await page.keyboard.press(',')
  await expect.poll(time).toBeCloseTo(0.008, 3)
  const before = await drawn()
  await page.keyboard.press('ArrowLeft')
  await page.keyboard.press('+')
  await expect.poll(drawn).toBeGreaterThan(before)
  await slider().focus()
  const from = await time()
  await page.keyboard.press('PageUp')
  await expect.poll(time).toBeGreaterThan(from + 0.05)
  await page.keyboard.press('End')
  await expect(page.getByText(/^state [1-9]\d* of \d+, contact force/)).toBeVisible()
  await page.keyboard.press('Home')
  await page.getByRole('combobox', { name: 'Speed of 3D' }).click()
  await page.getByRole('option', { name: '0.05 ×' }).click()
  await view().focus()
  await page.keyboard.press('Space')
  await expect(page.getByRole('button', { name: 'Pause 3D' })).toBeVisible()
  await expect.poll(time).toBeGreaterThan(0)
  await page.keyboard.press('Space')
  await expect(page.getByRole('button', { name: 'Play 3D' })).toBeVisible()
})

test("shows another member's rollout as a ghost, and graphs of any field", async () => {
  await page.getByRole('combobox', { name: 'Ghost' }).click()
  await page.getByRole('option', { name: /^default-s1/ }).first().click()
  await expect(page.getByText('ghost beside')).toBeVisible()
  await page.getByRole('combobox', { name: 'Graphs' }).click()
  await page.getByRole('combobox', { name: 'Graphs' }).fill('action[1]')
  await page.getByRole('option', { name: 'action[1]', exact: true }).click()
  await page.keyboard.press('Escape')
  const graph = page.getByRole('img', { name: /^action\[1\] over seconds\. Last values: rollout: .*, ghost: / })
  await expect(graph).toBeVisible()
  // A click on a graph moves the shared clock.
  await slider().focus()
  await page.keyboard.press('Home')
  const box = (await graph.locator('.u-over').boundingBox())!
  await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2)
  await expect.poll(time).toBeGreaterThan(0)
  await expect(graph.locator('.chart-marker')).toBeVisible()
  expect(await barriersOf(page, '3D')).toEqual([])
})

test('shows measured fields under the clock of the video', async () => {
  await page.goto(`${server.base}sessions/hop?tab=rollouts`)
  await page.getByRole('switch', { name: 'measured fields' }).check()
  const graph = page.getByRole('img', { name: /^x velocity over seconds\. Last values: / })
  await expect(graph).toBeVisible()
  const values = page.getByRole('figure').filter({ has: graph }).locator('[data-readout]')
  await expect(values).toHaveText(/^0: -?[\d.]+$/)
  await page.getByRole('slider', { name: 'Time', exact: true }).focus()
  await page.keyboard.press('ArrowRight')
  await page.keyboard.press('ArrowRight')
  await expect(values).toHaveText(/^0\.0[34]: -?[\d.]+$/) // 0.04 s; states are 8 ms apart
  await expect(graph.locator('.chart-marker')).toBeVisible()
  // A click on the graph moves the video, and the pointer reads other values.
  const box = (await graph.locator('.u-over').boundingBox())!
  await page.mouse.click(box.x + box.width * 0.75, box.y + box.height / 2)
  await expect.poll(() => page.locator('video').first().evaluate((video: HTMLVideoElement) => video.currentTime)).toBeGreaterThan(0.04)
  await expect(page.locator('video').first().locator('..')).toContainText(/code \d/)
  expect(await barriersOf(page, 'measured fields')).toEqual([])
})

test('draws poses of the server where there is no WebAssembly', async () => {
  const state = page.getByText(/^state \d+ of \d+, contact force/)
  const last = async (on: Page) => {
    await on.getByRole('slider', { name: 'Time in 3D' }).focus()
    await on.keyboard.press('End')
    return on.getByText(/^state [1-9]\d* of \d+, contact force/).textContent()
  }
  await page.goto(`${server.base}sessions/hop?tab=rollouts`)
  await page.getByRole('button', { name: 'Show in 3D' }).click()
  await expect(state).toBeVisible({ timeout: 60_000 })
  const computed = await last(page)
  const other = await seen.context.newPage()
  await other.addInitScript('Object.defineProperty(globalThis, "WebAssembly", { value: undefined })')
  await other.goto(`${server.base}sessions/hop?tab=rollouts`)
  await other.getByRole('button', { name: 'Show in 3D' }).click()
  await expect(other.getByText('Poses as the server computed them: this browser has no WebAssembly.')).toBeVisible({ timeout: 60_000 })
  await expect(other.locator('.scene canvas[data-drawn]')).toBeVisible({ timeout: 60_000 })
  expect(await last(other)).toBe(computed)
  await other.getByRole('combobox', { name: 'Ghost' }).click()
  await other.getByRole('option', { name: /^default-s1/ }).first().click()
  await expect(other.getByText('ghost beside')).toBeVisible({ timeout: 60_000 })
  expect(await barriersOf(other, '3D with poses of the server')).toEqual([])
  await other.close()
})

test('draws poses of the server for a model that the page cannot load', async () => {
  const other = await seen.context.newPage()
  // The page gets a model with an element that no MuJoCo knows.
  await other.route('**/dressage.v1.EnvironmentService/GetEnvironmentModel', async (route) => {
    const answer = await route.fetch()
    const body = Buffer.from(await answer.body())
    const at = body.indexOf('<worldbody')
    body.write('<worldb0dy', at, 'latin1')
    await route.fulfill({ response: answer, body })
  })
  await other.goto(`${server.base}sessions/hop?tab=rollouts`)
  await other.getByRole('button', { name: 'Show in 3D' }).click()
  await expect(other.getByText(/^Poses as the server computed them: .*XML/)).toBeVisible({ timeout: 60_000 })
  await expect(other.locator('.scene canvas[data-drawn]')).toBeVisible({ timeout: 60_000 })
  await other.close()
})

test('says in one line why there is no 3D, and keeps the rest', async () => {
  await page.goto(`${server.base}sessions/pole?tab=rollouts`)
  await page.getByRole('button', { name: 'Show in 3D' }).click()
  await expect(page.getByText('No 3D: environment: CartPole-v1 cannot be shown in 3D: the environment records no states of a MuJoCo model.')).toBeVisible()
  await page.goto('about:blank')
  await page.addInitScript('HTMLCanvasElement.prototype.getContext = () => null')
  await page.goto(`${server.base}sessions/hop?tab=rollouts`)
  await page.getByRole('button', { name: 'Show in 3D' }).click()
  await expect(page.getByText(/No 3D: this browser has no WebGL/)).toBeVisible()
  await expect(page.locator('video').first()).toBeVisible()
  expect(await barriersOf(page, 'no 3D')).toEqual([])
})

test('fits a phone', async () => {
  const phone = await seen.context.newPage()
  await phone.setViewportSize({ width: 390, height: 844 })
  await phone.goto(`${server.base}sessions/hop?tab=rollouts`)
  await phone.getByRole('button', { name: 'Show in 3D' }).click({ timeout: 60_000 })
  await expect(phone.locator('.scene canvas[data-drawn]')).toBeVisible({ timeout: 60_000 })
  expect(await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0)
  await phone.close()
})

test('the policy of the page was not violated', () => {
  expect(seen.problems).toEqual([])
})
