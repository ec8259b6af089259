// The login at an identity provider: a certified library's server, the authorization code flow with PKCE.
import { createServer, type Server as HttpServer } from 'node:http'

import { expect, test } from '@playwright/test'
import Provider from 'oidc-provider'

import { freePort, Server } from './server'
import { onlyText } from './text_only'
import { barriersOf, type Visit, visit } from './visit'

const FONT = /^https:\/\/fonts\./
const CLIENT = 'dressage-console'
const MARKED = `"><img src=x onerror=alert(1)>\u202e${'w'.repeat(100)}`
let server: Server
let http: HttpServer
let issuer: string
let seen: Visit

test.describe.configure({ mode: 'serial' })

test.beforeAll(async ({ browser }) => {
  test.setTimeout(200_000)
  const port = await freePort()
  issuer = `http://127.0.0.1:${port}`
  server = await Server.start({ DRESSAGE_ORCHESTRATOR_OIDC_ISSUER: issuer, DRESSAGE_ORCHESTRATOR_OIDC_AUDIENCE: CLIENT })
  const provider = new Provider(issuer, {
    clients: [{ client_id: CLIENT, redirect_uris: [`${server.base}login/callback`], token_endpoint_auth_method: 'none' }],
    claims: { openid: ['sub', 'dressage_role'] },
    conformIdTokenClaims: false,
    pkce: { required: () => true },
    clientBasedCORS: (_, origin) => `${origin}/` === server.base,
    cookies: { keys: ['of the tests'] },
    // Who logs in as `stranger` has no role here.
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...(id === 'stranger' ? {} : { dressage_role: id === MARKED ? 'user' : 'viewer' }) }) }),
  })
  http = createServer(provider.callback())
  await new Promise<void>((done) => http.listen(port, '127.0.0.1', done))
  await server.call('CreateSession', { sessionId: 'pole', spec: { intent: 'balance the pole', environment: 'environments/CartPole-v1', parameters: { episodeBudget: '20' } } })
  seen = await visit(browser)
  // The provider's own pages ask for a font elsewhere.
  await seen.context.route(FONT, (route) => route.fulfill({ contentType: 'text/css', body: '' }))
})

test.afterAll(async () => {
  await seen?.context.close()
  await server?.stop()
  http?.closeAllConnections()
  http?.close()
})

test.afterEach(() => {
  expect(seen.problems.splice(0)).toEqual([])
})

async function signIn(name: string): Promise<void> {
  const { page } = seen
  await page.getByRole('button', { name: /^Log in with 127\.0\.0\.1:/ }).click()
  await expect(page).toHaveURL(new RegExp(`^${issuer}/interaction/`))
  await page.locator('input[name=login]').fill(name)
  await page.locator('input[name=password]').fill('any')
  await page.locator('button[type=submit]').click()
  await page.getByRole('button', { name: 'Continue' }).click()
}

test('a person who cancels at the provider is told so, and may try again', async () => {
  const { page } = seen
  await page.goto(`${server.base}sessions/pole?tab=events`)
  await expect(page.getByRole('button', { name: 'Log in', exact: true })).toBeVisible()
  expect(await barriersOf(page, 'login with a provider')).toEqual([])
  await page.getByRole('button', { name: /^Log in with 127\.0\.0\.1:/ }).click()
  await page.getByRole('link', { name: /Cancel/ }).click()
  await expect(page.getByRole('alert')).toContainText('The login at the identity provider failed: End-User aborted interaction')
  expect(await barriersOf(page, 'a failed login')).toEqual([])
  await page.reload()
  await expect(page.getByRole('button', { name: 'Log in', exact: true })).toBeVisible()
  await expect(page.getByRole('alert')).toBeHidden()
})

test('a token without a role is refused', async () => {
  const { page, context } = seen
  await signIn('stranger')
  await expect(page.getByRole('alert')).toContainText('the server refuses its token')
  await context.clearCookies()
})

test('a person logs in by redirect and continues where they were', async () => {
  const { page, context } = seen
  const requests: string[] = []
  page.on('request', (request) => requests.push(request.url()))
  await page.goto(`${server.base}sessions/pole?tab=events`)
  await signIn('vera')
  await expect(page).toHaveURL(`${server.base}sessions/pole?tab=events`)
  await expect(page.getByRole('heading', { name: 'balance the pole' })).toBeVisible()
  const authorization = new URL(requests.find((url) => new URL(url).searchParams.has('code_challenge'))!)
  expect(Object.fromEntries(authorization.searchParams)).toMatchObject({ client_id: CLIENT, response_type: 'code', code_challenge_method: 'S256', scope: 'openid' })
  expect([...new Set(requests.filter((url) => !FONT.test(url)).map((url) => new URL(url).origin))].sort()).toEqual([issuer, new URL(server.base).origin].sort())
  // The token is in a cookie that scripts cannot read, and nowhere else.
  const kept = await page.evaluate(() => JSON.stringify([document.cookie, { ...localStorage }, { ...sessionStorage }]))
  expect(kept).not.toMatch(/eyJ/)
  const cookie = (await context.cookies(server.base)).find(({ name }) => name.startsWith('dressage-token'))
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' })
  expect(cookie!.value.split('.')).toHaveLength(3)
})

test('the role is that of the token', async () => {
  const { page } = seen
  await page.getByRole('button', { name: 'More actions' }).click()
  await page.getByRole('menuitem', { name: 'Delete' }).click()
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click()
  await expect(page.getByText(/oidc:vera \(viewer\) may not call/)).toBeVisible()
})

test('a name that tries to be more than text is text where the page shows it', async () => {
  const { page, context } = seen
  await context.clearCookies()
  await page.goto(`${server.base}benchmarks`)
  await signIn(MARKED)
  await expect(page.getByRole('heading', { name: 'Benchmarks' })).toBeVisible()
  const status = await page.evaluate(async () => {
    const spec = { intent: 'balance it', environment: 'environments/CartPole-v1', parameters: { episodeBudget: '20' } }
    const answer = await fetch('/dressage.v1.SessionService/CreateSession', { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ spec, sessionId: 'marked' }) })
    return answer.status
  })
  expect(status).toBe(200)
  await page.goto(server.base)
  const row = page.getByRole('row', { name: /balance it/ })
  await expect(row).toContainText('oidc:"><img src=x onerror=alert(1)>')
  await onlyText(seen)
})

test('the page may connect to the issuer and to nothing else', async () => {
  const answer = await seen.context.request.get(server.base)
  expect(answer.headers()['content-security-policy']).toContain(`connect-src 'self' ${issuer};`)
  const refused = await seen.context.request.get(`${server.base}login/callback?error=access_denied&state=unknown`)
  expect(refused.status()).toBe(200)
  await seen.page.goto(`${server.base}login/callback?code=stolen&state=unknown`)
  // A return that this tab did not ask for changes nothing.
  await expect(seen.page).toHaveURL(server.base)
  await expect(seen.page.getByRole('heading', { name: 'Sessions' })).toBeVisible()
})
