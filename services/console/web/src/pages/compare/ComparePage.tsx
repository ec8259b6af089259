// Sessions, iterations and members side by side. The address names them, so that it can be kept and shared.
import { Alert, Box, Group, Skeleton, Stack, Table, Text, Title } from '@mantine/core'
import { IconScale } from '@tabler/icons-react'
import { useQueries } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { useEffect, useState } from 'react'

import { useColors } from '../../components/Chart'
import { Copy, Empty, Panel } from '../../components/basics'
import type { Item } from '../../lib/compare'
import { formatItems, itemKey, MOST_ITEMS, parseItems } from '../../lib/compare'
import { isOver } from '../../lib/format'
import type { Live } from '../../live/useSession'
import { useLiveSession } from '../../live/useSession'
import { readAssignments, recordingOf, rolloutsOf } from '../session/data'
import { Synchronised } from '../session/Rollouts'
import { Curves } from './Curves'
import { Differences } from './Differences'
import { factsOf, iterationOf, useSources } from './facts'
import { Picker } from './Picker'
import type { Entry } from './Scores'
import { Scores } from './Scores'

export function ComparePage() {
  const { of = '' } = useSearch({ from: '/compare' })
  const navigate = useNavigate({ from: '/compare' })
  const color = useColors()
  const items = parseItems(of)
  const { sources, errors, loading } = useSources(items)
  const [lives, setLives] = useState<Record<string, Live>>({})
  const show = (next: Item[]) => {
    const text = formatItems(next)
    void navigate({ search: text === '' ? {} : { of: text }, replace: true })
  }
  const entries: Entry[] = items.map((item, index) => {
    const source = sources.get(item.session)
    const live = lives[item.session]?.session
    return {
      item,
      label: itemKey(item),
      color: color(index),
      source,
      error: errors.get(item.session),
      facts: source === undefined ? null : factsOf(item, source, live),
      live,
    }
  })
  return (
    <Stack gap="md">
      <Group justify="space-between" align="flex-end">
        <Box>
          <Title order={1} size="h3">
            Compare
          </Title>
          <Text size="sm" c="dimmed">
            Sessions, iterations or members, at most {MOST_ITEMS}. The address keeps the choice.
          </Text>
        </Box>
        <Group gap="xs" wrap="nowrap" flex={{ base: '1 1 100%', xs: '0 1 auto' }}>
          <Picker full={items.length >= MOST_ITEMS} onAdd={(session) => show(parseItems(formatItems([...items, { session, iteration: 0, member: '' }])))} />
          {items.length > 0 && <Copy value={location.href} label="copy the address" />}
        </Group>
      </Group>
      {[...new Set(items.map((item) => item.session))].map((session) => (
        <Watch key={session} session={session} onLive={setLives} />
      ))}
      {items.length === 0 ? (
        <Empty icon={<IconScale size={22} />} title="Nothing is compared yet">
          Add sessions above, select them in the list of sessions, or choose iterations in a session's lineage.
        </Empty>
      ) : (
        <>
          <Panel title="Scores" pad="sm">
            <Scores
              entries={entries}
              onPart={(item, next) => show(parseItems(formatItems(items.map((other) => (itemKey(other) === itemKey(item) ? next : other)))))}
              onRemove={(item) => show(items.filter((other) => itemKey(other) !== itemKey(item)))}
            />
          </Panel>
          {loading && <Skeleton h={240} radius="md" />}
          <Curves entries={entries} />
          <Criteria entries={entries} />
          <Videos entries={entries} />
          <Differences entries={entries} />
        </>
      )}
    </Stack>
  )
}

/** Subscribes to a session for as long as it is compared. */
function Watch({ session, onLive }: { session: string; onLive: (update: (old: Record<string, Live>) => Record<string, Live>) => void }) {
  const live = useLiveSession(`sessions/${session}`)
  useEffect(() => onLive((old) => (old[session] === live ? old : { ...old, [session]: live })), [live, session, onLive])
  return null
}

/** The scores of the criteria, for judges that share some. */
function Criteria({ entries }: { entries: Entry[] }) {
  const judged = entries.filter((entry) => (entry.facts?.judgment?.criteria.length ?? 0) > 0)
  const names = [...new Set(judged.flatMap((entry) => entry.facts!.judgment!.criteria.map((criterion) => criterion.name)))]
  if (judged.length < 2 || names.length === 0) return null
  return (
    <Panel title="Criteria" pad="sm">
      <Table.ScrollContainer minWidth={200 + 110 * judged.length}>
        <Table fz="sm" verticalSpacing={5}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Criterion</Table.Th>
              {judged.map((entry) => (
                <Table.Th key={entry.label} ta="right">
                  <Group gap={6} wrap="nowrap" justify="flex-end">
                    <Box w={14} h={3} bg={entry.color} className="whole" />
                    <span className="one-line">{entry.label}</span>
                  </Group>
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {names.map((name) => {
              const scores = judged.map((entry) => entry.facts!.judgment!.criteria.find((criterion) => criterion.name === name)?.score)
              const best = Math.max(...scores.map((value) => value ?? -1))
              return (
                <Table.Tr key={name}>
                  <Table.Td className="plain">{name}</Table.Td>
                  {scores.map((value, index) => (
                    <Table.Td key={judged[index]!.label} ta="right" className="numbers" fw={value === best ? 600 : 400}>
                      {value === undefined ? '–' : value.toFixed(2)}
                    </Table.Td>
                  ))}
                </Table.Tr>
              )
            })}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Panel>
  )
}

/** A video of each item under one clock: that of the best policy, or a recorded episode of its last checkpoint. */
function Videos({ entries }: { entries: Entry[] }) {
  const wanted = entries.flatMap((entry) => {
    const iteration = iterationOf(entry.item, entry.source)
    return iteration === undefined ? [] : [{ entry, iteration, name: `sessions/${entry.item.session}` }]
  })
  const names = [...new Set(wanted.map(({ name, iteration }) => `${name}/iterations/${iteration.number}`))]
  const answers = useQueries({
    queries: names.map((parent) => {
      const source = wanted.find(({ name, iteration }) => `${name}/iterations/${iteration.number}` === parent)!.entry.source
      return {
        queryKey: ['session', parent.split('/iterations')[0], 'assignments', Number(parent.split('/').pop())],
        queryFn: () => readAssignments(parent),
        staleTime: source !== undefined && isOver(source.session.state) ? Number.POSITIVE_INFINITY : 10_000,
      }
    }),
  })
  const shown = wanted.flatMap(({ entry, iteration, name }) => {
    const within = `${name}/iterations/${iteration.number}/`
    const { bestVideo } = entry.source!.session
    const fits = (key: string) => key.startsWith(within) && (entry.item.member === '' || key.includes(`/members/${entry.item.member}/`))
    const all = rolloutsOf(answers[names.indexOf(within.slice(0, -1))]?.data ?? [])
    const recorded = all.filter(({ rollout }) => rollout.video !== '' && fits(rollout.video))
    const video = fits(bestVideo) ? bestVideo : (recorded.find(({ last, rollout }) => last && rollout.label === 'median') ?? recorded[0])?.rollout.video
    return video === undefined ? [] : [{ key: video, label: entry.label, recording: recordingOf(video, all) }]
  })
  const without = wanted.map(({ entry }) => entry.label).filter((label) => !shown.some((video) => video.label === label))
  if (wanted.length === 0) return null
  return (
    <Stack gap="xs">
      {shown.length > 0 && <Synchronised key={shown.map((video) => video.key).join()} videos={shown.map((video) => video.key)} labels={shown.map((video) => video.label)} recordings={shown.map((video) => video.recording)} />}
      {without.length > 0 && (
        <Alert color="gray" p="xs">
          <Text size="xs" className="plain">{`No video of ${without.join(', ')}: the server renders that of a session's best policy when the session ends. \`dressage render\` renders any recorded rollout.`}</Text>
        </Alert>
      )}
    </Stack>
  )
}
