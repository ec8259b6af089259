// A proposal that waits for a person: read it, change it, approve it.
import { Alert, Button, Group, Stack, Text, Textarea } from '@mantine/core'
import { notifications } from '@mantine/notifications'
import { IconHandStop } from '@tabler/icons-react'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'

import { errorText, sessions } from '../../api/clients'
import { CodeView } from '../../components/CodeView'
import type { Session } from '../../gen/dressage/v1/session_pb'
import { sourceOf, useIterations } from './data'

export function Approval({ name, session }: { name: string; session: Session }) {
  const client = useQueryClient()
  const iterations = useIterations(name)
  const source = sourceOf(iterations.data?.find((entry) => entry.number === session.awaitingApproval))
  const [note, setNote] = useState('')
  const [edited, setEdited] = useState<string | null>(null)
  const approve = useMutation({
    mutationFn: async () => {
      if (edited !== null && edited !== source?.text) await sessions.steerSession({ name, proposalSource: edited, requestId: crypto.randomUUID() })
      return sessions.approveSession({ name, iteration: session.awaitingApproval, note, requestId: crypto.randomUUID() })
    },
    onSuccess: () => client.invalidateQueries({ queryKey: ['session', name] }),
    onError: (error) => notifications.show({ color: 'red', title: 'Not approved', message: errorText(error) }),
  })
  return (
    <Alert color="grape" icon={<IconHandStop size={18} />} title={`Iteration ${session.awaitingApproval} waits for your approval`} styles={{ body: { minWidth: 0 } }}>
      <Stack gap="sm">
        {source !== null &&
          (edited === null ? (
            <CodeView code={source.text} language={source.language} label={source.title} maxHeight={300} />
          ) : (
            <Textarea aria-label={source.title} value={edited} onChange={(event) => setEdited(event.currentTarget.value)} autosize minRows={8} maxRows={24} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 12.5 } }} />
          ))}
        <Textarea label="Remarks (optional)" value={note} onChange={(event) => setNote(event.currentTarget.value)} autosize maxLength={4000} />
        <Group>
          <Button loading={approve.isPending} onClick={() => approve.mutate()}>
            {edited !== null && edited !== source?.text ? 'Approve my version' : 'Approve'}
          </Button>
          {source !== null && (
            <Button variant="default" onClick={() => setEdited(edited === null ? source.text : null)}>
              {edited === null ? 'Edit first' : 'Discard my changes'}
            </Button>
          )}
          <Text size="xs" c="dimmed">
            An edited proposal is checked before it is evaluated.
          </Text>
        </Group>
      </Stack>
    </Alert>
  )
}
