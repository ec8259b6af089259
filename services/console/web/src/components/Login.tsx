// The form that asks for the token of the server.
import { Alert, Button, Center, Code, Divider, Paper, PasswordInput, Stack, Text, Title } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { login, providerOf, takeProblem } from '../api/login'

export function Login({ onDone }: { onDone: () => void }) {
  const [token, setToken] = useState('')
  const [problem, setProblem] = useState('')
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState(takeProblem)
  const [leaving, setLeaving] = useState(false)
  const provider = useQuery({ queryKey: ['provider'], queryFn: providerOf, staleTime: Number.POSITIVE_INFINITY })
  const redirect = async () => {
    setLeaving(true)
    setFailed('')
    try {
      await (await import('../api/oidc')).begin(provider.data!)
    } catch (error) {
      setFailed(`The identity provider cannot be reached: ${error instanceof Error ? error.message : String(error)}`)
      setLeaving(false)
    }
  }
  const send = async () => {
    setBusy(true)
    const message = await login(token.trim())
    setBusy(false)
    setProblem(message)
    if (message === '') onDone()
  }
  return (
    <Center mih="100vh" p="md">
      <Paper withBorder radius="md" p="xl" maw={420} w="100%">
        <form
          onSubmit={(event) => {
            event.preventDefault()
            void send()
          }}
        >
          <Stack>
            <Title order={1} size="h3">
              Dressage
            </Title>
            {failed !== '' && (
              <Alert color="red" role="alert">
                <Text size="sm" className="plain">
                  {failed}
                </Text>
              </Alert>
            )}
            {provider.data != null && (
              <>
                <Button onClick={() => void redirect()} loading={leaving}>
                  {`Log in with ${new URL(provider.data.issuer).host}`}
                </Button>
                <Divider label="or" />
              </>
            )}
            <Text size="sm" c="dimmed">
              This server asks for a token. <Code>dressage serve</Code> prints an address that contains it; on a cluster, ask your administrator.
            </Text>
            <PasswordInput
              label="Token"
              value={token}
              onChange={(event) => setToken(event.currentTarget.value)}
              error={problem}
              autoFocus={provider.data == null}
              autoComplete="current-password"
            />
            <Button type="submit" variant={provider.data == null ? 'filled' : 'default'} loading={busy} disabled={token.trim() === ''}>
              Log in
            </Button>
          </Stack>
        </form>
      </Paper>
    </Center>
  )
}
