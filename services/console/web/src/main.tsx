import '@mantine/core/styles.css'
import '@mantine/notifications/styles.css'
import './styles.css'

import { createTheme, MantineProvider } from '@mantine/core'
import { Notifications } from '@mantine/notifications'
import { QueryClient, QueryClientProvider } from '@tanstack/react-query'
import { RouterProvider } from '@tanstack/react-router'
import { setNonce } from 'get-nonce'
import { StrictMode } from 'react'
import { createRoot } from 'react-dom/client'

import { isNotFound, isUnauthenticated } from './api/clients'
import { CALLBACK, loginFromAddress, loginFromProvider } from './api/login'
import { router } from './router'

const theme = createTheme({
  primaryColor: 'cyan',
  primaryShade: 9,
  autoContrast: true,
  defaultRadius: 'md',
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif',
  fontFamilyMonospace: 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace',
  cursorType: 'pointer',
  components: {
    Notification: { defaultProps: { closeButtonProps: { 'aria-label': 'Dismiss' } } },
    // Tables that fit have no empty line where the bar of wider ones is.
    TableScrollContainer: { defaultProps: { scrollAreaProps: { offsetScrollbars: 'present' } } },
  },
})

/** Text on light backgrounds of the same hue, at the contrast of WCAG AA also where the pointer makes them darker. */
const ON_LIGHT = { yellow: '#a05300', orange: '#a9380b', teal: '#076f50', cyan: '#096677', red: '#ac2424', blue: '#155999', grape: '#832d98' }
/** White text on a button under the pointer, at the same contrast. */
const hover = { '--mantine-color-cyan-filled-hover': '#095d6c' }
const light = { ...hover, ...Object.fromEntries(Object.entries(ON_LIGHT).map(([name, color]) => [`--mantine-color-${name}-light-color`, color])) }

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 1_000,
      retry: (count, error) => count < 3 && !isUnauthenticated(error) && !isNotFound(error),
    },
  },
})

const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? ''
// Dialogues add a style that keeps the page behind them from scrolling.
setNonce(nonce)

// A server of another version has other files: the page loads itself anew, once, instead of failing.
addEventListener('vite:preloadError', (event) => {
  event.preventDefault()
  const last = Number(sessionStorage.getItem('dressage-reloaded') ?? 0)
  if (Date.now() - last < 30_000) return
  sessionStorage.setItem('dressage-reloaded', String(Date.now()))
  location.reload()
})

const show = () => createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={() => ({ variables: {}, light, dark: hover })} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={client}>
        <Notifications position="bottom-right" />
        <RouterProvider router={router} />
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
)

if (location.pathname === CALLBACK) await loginFromProvider()
else {
  await loginFromAddress()
  show()
}
