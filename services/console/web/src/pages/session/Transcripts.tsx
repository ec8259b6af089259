// Whole conversations with models, as the server recorded them: what was sent, what came back, and what it cost.
import { Badge, Box, Button, Group, Select, Skeleton, Stack, Text } from '@mantine/core'
import { useQueries, useQuery } from '@tanstack/react-query'
import { useState } from 'react'

import { artifacts, artifactUrl } from '../../api/clients'
import { Panel, Problem } from '../../components/basics'
import { compact } from '../../lib/format'
import type { Message, Task } from '../../lib/transcripts'
import { readEntry, tasksOf } from '../../lib/transcripts'

const MOST_KEYS = 5_000
const FOLDED = 1_500

export function useTasks(name: string) {
  return useQuery({
    queryKey: ['session', name, 'transcripts'],
    queryFn: async ({ signal }) => {
      const keys: string[] = []
      let pageToken = ''
      do {
        const page = await artifacts.listArtifacts({ prefix: `${name}/llm/`, pageSize: 1000, pageToken }, { signal })
        keys.push(...page.artifacts.map((entry) => entry.key))
        pageToken = page.nextPageToken
      } while (pageToken !== '' && keys.length < MOST_KEYS)
      return tasksOf(keys)
    },
  })
}

const titleOf = (task: Task) =>
  [task.iteration > 0 ? `iteration ${task.iteration}` : '', task.role.replaceAll('_', ' '), task.id.split('/').slice(1).filter((word) => /^\d+(#0)?$/.test(word)).slice(task.iteration > 0 ? 1 : 0).join('.').replace('#0', '')].filter(Boolean).join(', ') +
  (task.turns.length > 1 ? ` (${task.turns.length} replies)` : '')

export function Transcripts({ tasks, iteration }: { tasks: Task[]; iteration: number }) {
  const [chosen, setChosen] = useState<string | null>(null)
  const task = tasks.find((entry) => entry.id === chosen) ?? tasks.find((entry) => entry.iteration === iteration) ?? tasks[0]
  if (task === undefined) return null
  return (
    <Stack gap="sm">
      <Select
        aria-label="Conversation"
        searchable
        allowDeselect={false}
        maw={520}
        maxDropdownHeight={360}
        data={tasks.map((entry) => ({ value: entry.id, label: `${titleOf(entry)}${entry.id.endsWith('#0') ? '' : `, sample ${entry.id.split('#')[1]}`}` }))}
        value={task.id}
        onChange={setChosen}
      />
      <Transcript key={task.id} task={task} />
    </Stack>
  )
}

function Transcript({ task }: { task: Task }) {
  const answers = useQueries({
    queries: task.turns.map((turn) => ({
      queryKey: ['transcript', turn.key],
      queryFn: async ({ signal }: { signal: AbortSignal }) => {
        const answer = await fetch(artifactUrl(turn.key), { signal })
        if (!answer.ok) throw new Error(`The entry cannot be read (status ${answer.status}).`)
        return readEntry(await answer.text())
      },
      staleTime: Number.POSITIVE_INFINITY,
    })),
  })
  const failed = answers.find((answer) => answer.error !== null)
  if (failed !== undefined) return <Problem error={failed.error} />
  if (answers.some((answer) => answer.isPending)) return <Skeleton h={240} radius="md" />
  const entries = answers.flatMap((answer) => (answer.data === undefined || answer.data === null ? [] : [answer.data]))
  const last = entries.at(-1)
  if (last === undefined) return <Text size="sm" c="dimmed">This conversation has no reply.</Text>
  const sum = (of: (entry: (typeof entries)[number]) => number) => entries.reduce((total, entry) => total + of(entry), 0)
  const known = entries.every((entry) => entry.dollars !== null)
  return (
    <Panel
      pad="sm"
      title={last.model}
      right={
        <Text size="xs" c="dimmed" className="numbers">
          {`${compact(sum((entry) => entry.tokensIn))} tokens in, ${compact(sum((entry) => entry.tokensOut))} out${known ? `, $${sum((entry) => entry.dollars ?? 0).toFixed(4)}` : ''}`}
        </Text>
      }
    >
      <Stack gap="sm">
        {last.messages.map((message, index) => (
          <Bubble key={index} message={message} />
        ))}
      </Stack>
    </Panel>
  )
}

const ROLES: Record<string, [string, string]> = { system: ['instructions', 'gray'], user: ['request', 'blue'], assistant: ['reply', 'teal'], reply: ['reply', 'teal'], tool: ['tool', 'grape'] }

function Bubble({ message }: { message: Message }) {
  const [open, setOpen] = useState(false)
  const [word, color] = ROLES[message.role] ?? [message.role, 'gray']
  const long = message.text.length > FOLDED
  const shown = long && !open ? `${message.text.slice(0, FOLDED)} …` : message.text
  return (
    <Box className="reply">
      <Group gap="xs" mb={4}>
        <Badge size="sm" variant="light" color={color}>
          {word}
        </Badge>
        {long && (
          <Button size="compact-xs" variant="subtle" aria-expanded={open} onClick={() => setOpen(!open)}>
            {open ? 'fold' : `all ${message.text.length.toLocaleString('en')} characters`}
          </Button>
        )}
      </Group>
      {shown !== '' && <Box className="transcript">{shown}</Box>}
      {message.calls.map((call, index) => (
        <Box key={index} className="transcript" mt={4}>{`${call.name}(${call.arguments})`}</Box>
      ))}
      {message.attachments.map((key) => (
        <Text key={key} size="xs" c="dimmed" className="plain">{`attached: ${key}`}</Text>
      ))}
    </Box>
  )
}
