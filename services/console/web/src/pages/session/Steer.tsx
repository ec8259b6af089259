// Directions of a person for the next iteration.
import { Button, Group, Select, Stack, Text, Textarea } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { IconSteeringWheel } from '@tabler/icons-react'
import { useMutation, useQueryClient } from '@tanstack/react-query'

import { errorText, sessions } from '../../api/clients'
import { Panel } from '../../components/basics'
import type { Session } from '../../gen/dressage/v1/session_pb'
import { useDraft } from '../../lib/draft'
import { useIterations } from './data'

export function Steer({ name, session }: { name: string; session: Session }) {
  const client = useQueryClient()
  const iterations = useIterations(name)
  const [draft, change, drop] = useDraft<{ note: string; rebase: string | null }>(`direction/${name}`)
  const { note, rebase } = draft ?? { note: '', rebase: null }
  const send = useMutation({
    mutationFn: () => sessions.steerSession({ name, note: note.trim(), rebaseTo: Number(rebase ?? 0), requestId: crypto.randomUUID() }),
    onSuccess: async () => {
      notifications.show({ message: 'The next iteration follows your direction.' })
      drop()
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
          <Textarea aria-label="Direction" placeholder="keep the torso upright; weigh speed less" value={note} onChange={(event) => change(() => ({ rebase, note: event.target.value }))} autosize minRows={2} maxLength={4000} />
          {ended.length > 0 && (
            <Select
              label="Start from"
              placeholder="the reviser's choice"
              clearable
              data={ended.map((entry) => ({ value: String(entry.number), label: `iteration ${entry.number}` }))}
              value={rebase}
              onChange={(value) => change(() => ({ note, rebase: value }))}
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
