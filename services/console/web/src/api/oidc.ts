// The login at an identity provider: OpenID Connect, authorization code with PKCE. The ID token becomes the cookie, as a typed token does.
import { InMemoryWebStorage, UserManager, WebStorageStateStore } from 'oidc-client-ts'

import { CALLBACK, login, type Provider } from './login'

const FAILED = 'The login at the identity provider failed'

function managerOf({ issuer, clientId }: Provider): UserManager {
  return new UserManager({
    authority: issuer,
    client_id: clientId,
    redirect_uri: location.origin + CALLBACK,
    response_type: 'code',
    scope: 'openid',
    loadUserInfo: false,
    automaticSilentRenew: false,
    monitorSession: false,
    requestTimeoutInSeconds: 20,
    // What a login needs until it returns is for this tab; tokens are not kept at all.
    stateStore: new WebStorageStateStore({ store: sessionStorage }),
    userStore: new WebStorageStateStore({ store: new InMemoryWebStorage() }),
  })
}

/** Leave the page for the provider, which comes back to `CALLBACK`. @throws Error if the provider does not answer. */
export async function begin(provider: Provider): Promise<void> {
  const from = location.pathname === CALLBACK ? '/' : location.pathname + location.search
  await managerOf(provider).signinRedirect({ state: from })
}

/** End the login on the provider's return. The result is the address to continue at, or what is wrong. */
export async function finish(provider: Provider): Promise<{ to: string } | { problem: string }> {
  try {
    const user = await managerOf(provider).signinCallback()
    if (user?.id_token === undefined) return { problem: `${FAILED}: it sent no ID token.` }
    const problem = await login(user.id_token)
    // A path of this page, whatever the state says.
    const to = new URL(typeof user.state === 'string' ? user.state : '/', location.origin)
    return problem === '' ? { to: to.origin === location.origin ? to.pathname + to.search : '/' } : { problem: `${FAILED}: the server refuses its token. ${problem}` }
  } catch (error) {
    return { problem: `${FAILED}: ${error instanceof Error ? error.message : String(error)}` }
  }
}
