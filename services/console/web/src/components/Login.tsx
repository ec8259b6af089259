// The form that asks for the token of the server.
import { Button, Center, Code, Paper, PasswordInput, Stack, Text, Title } from '@mantine/core'
import { useState } from 'react'

import { login } from '../api/login'

export function Login({ onDone }: { onDone: () => void }) {
  const [token, setToken] = useState('')
  const [problem, setProblem] = useState('')
  const [busy, setBusy] = useState(false)
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
            <Text size="sm" c="dimmed">
              This server asks for a token. <Code>dressage serve</Code> prints an address that contains it; on a cluster, ask your administrator.
            </Text>
            <PasswordInput
              label="Token"
              value={token}
              onChange={(event) => setToken(event.currentTarget.value)}
              error={problem}
              autoFocus
              autoComplete="current-password"
            />
            <Button type="submit" loading={busy} disabled={token.trim() === ''}>
              Log in
            </Button>
          </Stack>
        </form>
      </Paper>
    </Center>
  )
}
