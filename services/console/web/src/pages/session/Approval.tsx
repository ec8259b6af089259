// A proposal that waits for a person: read it, change it, approve it.
import { Alert, Button, Group, Stack, Text, Textarea } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { IconHandStop } from '@tabler/icons-react'
import { useMutation, useQueryClient } from '@tanstack/react-query'

import { errorText, sessions } from '../../api/clients'
import { CodeView } from '../../components/CodeView'
import type { Session } from '../../gen/dressage/v1/session_pb'
import { useDraft } from '../../lib/draft'
import { sourceOf, useIterations } from './data'

export function Approval({ name, session }: { name: string; session: Session }) {
  const client = useQueryClient()
  const iterations = useIterations(name)
  const source = sourceOf(iterations.data?.find((entry) => entry.number === session.awaitingApproval))
  const [draft, change, drop] = useDraft<{ note: string; edited: string | null }>(`approval/${name}/${session.awaitingApproval}`)
  const { note, edited } = draft ?? { note: '', edited: null }
  const changed = edited !== null && edited !== source?.text
  // A changed proposal is checked first, and then waits again: an approval that was sent with it would often come while none waits.
  const send = useMutation({
    mutationFn: async () => {
      if (changed) await sessions.steerSession({ name, proposalSource: edited, requestId: crypto.randomUUID() })
      else await sessions.approveSession({ name, iteration: session.awaitingApproval, note, requestId: crypto.randomUUID() })
    },
    onSuccess: async () => {
      if (changed) {
        notifications.show({ message: 'Your version is checked, and then waits for your approval.' })
        change(() => ({ note, edited: null }))
      } else drop()
      await client.invalidateQueries({ queryKey: ['session', name] })
    },
    onError: (error) => notifications.show({ color: 'red', title: changed ? 'Not accepted' : 'Not approved', message: errorText(error) }),
  })
  return (
    <Alert color="grape" icon={<IconHandStop size={18} />} title={`Iteration ${session.awaitingApproval} waits for your approval`} styles={{ body: { minWidth: 0 } }}>
      <Stack gap="sm">
        {source !== null &&
          (edited === null ? (
            <CodeView code={source.text} language={source.language} label={source.title} maxHeight={300} />
          ) : (
            <Textarea aria-label={source.title} value={edited} onChange={(event) => change(() => ({ note, edited: event.target.value }))} autosize minRows={8} maxRows={24} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 12.5 } }} />
          ))}
        <Textarea label="Remarks (optional)" value={note} onChange={(event) => change(() => ({ edited, note: event.target.value }))} autosize maxLength={4000} />
        <Group>
          <Button loading={send.isPending} onClick={() => send.mutate()}>
            {changed ? 'Check my version' : 'Approve'}
          </Button>
          {source !== null && (
            <Button variant="default" onClick={() => change(() => ({ note, edited: edited === null ? source.text : null }))}>
              {edited === null ? 'Edit first' : 'Discard my changes'}
            </Button>
          )}
          <Text size="xs" c="dimmed">
            An edited proposal is checked, and waits for approval again.
          </Text>
        </Group>
      </Stack>
    </Alert>
  )
}
