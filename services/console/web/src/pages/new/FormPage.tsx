// What the forms of sessions and benchmarks share: their state, the two columns, and the button that starts.
import { Button, Grid, Stack, Title } from '@mantine/core'
import { IconPlayerPlay } from '@tabler/icons-react'
import { type ReactNode, useCallback, useState } from 'react'

import { digest } from '../../lib/format'
import type { Form } from './form'

export type SetField = <K extends keyof Form>(key: K, value: Form[K]) => void

/** The fields, how one of them changes, and the id of a request that starts with some content: a repeated click starts nothing twice. */
export function useForm(first: Form) {
  const [form, setForm] = useState(first)
  const [key] = useState(() => crypto.randomUUID())
  const set: SetField = useCallback((name, value) => setForm((old) => ({ ...old, [name]: value })), [])
  return { form, set, setForm, requestId: (content: unknown) => `${key}-${digest(JSON.stringify(content))}` }
}

type Props = {
  title: string
  fields: ReactNode
  /** What is beside the fields, above the button: the plan, and why nothing was started. */
  beside: ReactNode
  action: string
  pending: boolean
  disabled: boolean
  onStart: () => void
}

export function FormPage({ title, fields, beside, action, pending, disabled, onStart }: Props) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        onStart()
      }}
    >
      <Title order={1} size="h3" mb="md">
        {title}
      </Title>
      <Grid gap="lg">
        <Grid.Col span={{ base: 12, md: 7 }}>
          <Stack>{fields}</Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, md: 5 }}>
          <Stack pos="sticky" top={68}>
            {beside}
            <Button type="submit" size="md" leftSection={<IconPlayerPlay size={18} />} loading={pending} disabled={disabled}>
              {action}
            </Button>
          </Stack>
        </Grid.Col>
      </Grid>
    </form>
  )
}
