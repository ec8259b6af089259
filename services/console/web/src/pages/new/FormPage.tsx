// What the forms of sessions and benchmarks share: their state, the two columns, and the button that starts.
import { Button, Grid, Group, Stack, Title } from '@mantine/core'
import { IconEraser, IconPlayerPlay } from '@tabler/icons-react'
import { type ReactNode, useCallback, useState } from 'react'

import { useDraft } from '../../lib/draft'
import { digest } from '../../lib/format'
import type { Form } from './form'

export type SetField = <K extends keyof Form>(key: K, value: Form[K]) => void

/** What a form keeps while it is written. `key` stays with it, so that a click that is repeated after a reload starts nothing twice. */
type Draft<T> = { key: string; form: T }

/**
 * A form that the tab keeps until its request was sent.
 *
 * @param name of the draft.
 * @param first what the form holds before anybody changed it.
 * @returns the fields, how one of them changes, the id of a request that starts with some content, and how the draft is dropped;
 * `drop` is undefined where there is none.
 */
export function useForm<T extends object>(name: string, first: T) {
  const [draft, change, drop] = useDraft<Draft<T>>(name)
  const [key, setKey] = useState(() => draft?.key ?? crypto.randomUUID())
  // A draft of an older page may lack a field.
  const form: T = draft === undefined ? first : { ...first, ...draft.form }
  const set = useCallback(
    <K extends keyof T>(field: K, value: T[K]) => change((old) => ({ key: old?.key ?? key, form: { ...first, ...old?.form, [field]: value } })),
    [change, key, first],
  )
  const clear = useCallback(() => {
    drop()
    setKey(crypto.randomUUID())
  }, [drop])
  return { form, set, requestId: (content: unknown) => `${key}-${digest(JSON.stringify(content))}`, drop: draft === undefined ? undefined : clear }
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
  /** Empties the form; undefined while there is nothing to empty. */
  onClear: (() => void) | undefined
}

export function FormPage({ title, fields, beside, action, pending, disabled, onStart, onClear }: Props) {
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        onStart()
      }}
    >
      <Group justify="space-between" mb="md">
        <Title order={1} size="h3">
          {title}
        </Title>
        <Button size="compact-sm" variant="subtle" color="gray" leftSection={<IconEraser size={15} />} disabled={onClear === undefined} onClick={onClear}>
          Start over
        </Button>
      </Group>
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
