// The login: the token of the address's fragment, or of the form, becomes a cookie that scripts cannot read.

/** An identity provider, and the page's client id there. */
export type Provider = { issuer: string; clientId: string }

/** Where the identity provider returns to. */
export const CALLBACK = '/login/callback'
const ATTEMPTS = 4
const NO_ANSWER = 'The server does not answer.'
const PROBLEM = 'dressage-login-problem'

/** Where people log in; null: with a token only. */
export async function providerOf(): Promise<Provider | null> {
  const answer = await fetch('/login', { signal: AbortSignal.timeout(15_000) }).catch(() => null)
  if (answer === null || !answer.ok) return null
  return ((await answer.json()) as { oidc?: Provider | null }).oidc ?? null
}

/** End a login on the provider's return, and continue where it began. The page loads anew. */
export async function loginFromProvider(): Promise<void> {
  const provider = await providerOf()
  const result = provider === null ? { to: '/' } : await (await import('./oidc')).finish(provider)
  if ('problem' in result) sessionStorage.setItem(PROBLEM, result.problem)
  location.replace('to' in result ? result.to : '/')
}

/** What was wrong with the last login at the provider, once. */
export function takeProblem(): string {
  const problem = sessionStorage.getItem(PROBLEM) ?? ''
  sessionStorage.removeItem(PROBLEM)
  return problem
}

/** Take the token out of the address, so that it is neither bookmarked nor shared, and send it. */
export async function loginFromAddress(): Promise<void> {
  const token = new URLSearchParams(location.hash.slice(1)).get('token')
  if (token === null) return
  history.replaceState(history.state, '', location.pathname + location.search)
  // The token is nowhere else: a server that is busy is asked again.
  for (let attempt = 0; attempt < ATTEMPTS && (await login(token)) === NO_ANSWER; attempt += 1);
}

/** Send a token; the result is empty, or what is wrong. */
export async function login(token: string): Promise<string> {
  const answer = await fetch('/login', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token }),
    signal: AbortSignal.timeout(15_000),
  }).catch(() => null)
  if (answer === null) return NO_ANSWER
  if (answer.ok) return ''
  const body: unknown = await answer.json().catch(() => null)
  return typeof body === 'object' && body !== null && 'message' in body ? String(body.message) : 'The login failed.'
}

export async function logout(): Promise<void> {
  await fetch('/login', { method: 'DELETE', signal: AbortSignal.timeout(15_000) }).catch(() => null)
}
