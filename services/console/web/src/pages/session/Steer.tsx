// Directions of a person for the next iteration.
import { Button, Group, Select, Stack, Text, Textarea } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { IconSteeringWheel } from '@tabler/icons-react'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText, sessions } from '../../api/clients'
import { Panel } from '../../components/basics'
import type { Session } from '../../gen/dressage/v1/session_pb'
import { useIterations } from './data'

export function Steer({ name, session }: { name: string; session: Session }) {
  const client = useQueryClient()
  const iterations = useIterations(name)
  const [note, setNote] = useState('')
  const [rebase, setRebase] = useState<string | null>(null)
  const send = useMutation({
    mutationFn: () => sessions.steerSession({ name, note: note.trim(), rebaseTo: Number(rebase ?? 0), requestId: crypto.randomUUID() }),
    onSuccess: async () => {
      notifications.show({ message: 'The next iteration follows your direction.' })
      setNote('')
      setRebase(null)
      await client.invalidateQueries({ queryKey: ['session', name] })
    },
    onError: (error) => notifications.show({ color: 'red', title: 'Not sent', message: errorText(error) }),
  })
  const ended = (iterations.data ?? []).filter((entry) => entry.endTime !== undefined)
  return (
    <Panel title="Steer the next iteration">
      <form
        onSubmit={(event) => {
          event.preventDefault()
          send.mutate()
        }}
      >
        <Stack gap="sm">
          <Textarea aria-label="Direction" placeholder="keep the torso upright; weigh speed less" value={note} onChange={(event) => setNote(event.currentTarget.value)} autosize minRows={2} maxLength={4000} />
          {ended.length > 0 && (
            <Select
              label="Start from"
              placeholder="the reviser's choice"
              clearable
              data={ended.map((entry) => ({ value: String(entry.number), label: `iteration ${entry.number}` }))}
              value={rebase}
              onChange={setRebase}
            />
          )}
          <Group justify="space-between">
            <Text size="xs" c="dimmed">
              {session.currentIteration >= (session.spec?.maxIterations ?? 0) ? 'This is the last iteration; resume the session later to add more.' : ''}
            </Text>
            <Button type="submit" size="compact-md" variant="light" leftSection={<IconSteeringWheel size={16} />} loading={send.isPending} disabled={note.trim() === '' && rebase === null}>
              Send
            </Button>
          </Group>
        </Stack>
      </form>
    </Panel>
  )
}
