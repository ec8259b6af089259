// The login: the token of the address's fragment, or of the form, becomes a cookie that scripts cannot read.

/** Take the token out of the address, so that it is neither bookmarked nor shared, and send it. */
export async function loginFromAddress(): Promise<void> {
  const token = new URLSearchParams(location.hash.slice(1)).get('token')
  if (token === null) return
  history.replaceState(history.state, '', location.pathname + location.search)
  await login(token)
}

/** Send a token; the result is empty, or what is wrong. */
export async function login(token: string): Promise<string> {
  const answer = await fetch('/login', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ token }),
    signal: AbortSignal.timeout(15_000),
  }).catch(() => null)
  if (answer === null) return 'The server does not answer.'
  if (answer.ok) return ''
  const body: unknown = await answer.json().catch(() => null)
  return typeof body === 'object' && body !== null && 'message' in body ? String(body.message) : 'The login failed.'
}

export async function logout(): Promise<void> {
  await fetch('/login', { method: 'DELETE', signal: AbortSignal.timeout(15_000) }).catch(() => null)
}
