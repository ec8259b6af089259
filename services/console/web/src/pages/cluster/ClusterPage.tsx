// What the installation does now: pools and their runs, what waits and why, speed, and the cost of models.
import { Alert, Anchor, Badge, Box, Group, Progress, SegmentedControl, SimpleGrid, Skeleton, Stack, Table, Text, Title, Tooltip } from '@mantine/core'
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'

import { sessions as api } from '../../api/clients'
import { everySession } from '../../api/everySession'
import { Fact, Panel, Problem } from '../../components/basics'
import type { Session } from '../../gen/dressage/v1/session_pb'
import { RunState, SessionState } from '../../gen/dressage/v1/session_pb'
import type { Pool, PoolRun } from '../../gen/dressage/v1/session_service_pb'
import { bytes, compact, duration, environmentId, lastPart, placeOf, seconds } from '../../lib/format'
import { spendBy } from '../../lib/spend'
import { Usage } from './Usage'

const STATES: Partial<Record<RunState, [string, string]>> = {
  [RunState.QUEUED]: ['queued', 'yellow'],
  [RunState.STARTING]: ['starting', 'blue'],
  [RunState.RUNNING]: ['running', 'teal'],
}

export function ClusterPage() {
  const pools = useQuery({ queryKey: ['pools'], queryFn: async ({ signal }) => (await api.listPools({}, { signal })).pools, refetchInterval: 2_000 })
  const list = useQuery({ queryKey: ['sessions', false], queryFn: ({ signal }) => everySession(false, signal), refetchInterval: 5_000 })
  const now = Date.now() / 1000
  const byName = new Map((list.data ?? []).map((session) => [session.name, session]))
  const runs = (pools.data ?? []).flatMap((pool) => pool.runs)
  const count = (state: RunState) => runs.filter((entry) => entry.run?.state === state).length
  const oldest = Math.max(0, ...runs.filter((entry) => entry.run?.state === RunState.QUEUED).map((entry) => now - (seconds(entry.run?.createTime) ?? now)))
  const candidates = runs.reduce((sum, entry) => sum + entry.candidatesPerSecond, 0)
  return (
    <Stack gap="md">
      <Box>
        <Title order={1} size="h3">
          Cluster
        </Title>
        <Text size="sm" c="dimmed">
          Pools, their runs and queues, renewed every two seconds.
        </Text>
      </Box>
      {pools.error !== null && <Problem error={pools.error} title="The pools cannot be listed" />}
      {pools.data === undefined ? (
        pools.error === null && <Skeleton h={200} radius="md" />
      ) : (
        <>
          <Group gap="xl" className="facts">
            <Fact label="Runs">{count(RunState.RUNNING) + count(RunState.STARTING)}</Fact>
            <Fact label="Queued">{count(RunState.QUEUED)}</Fact>
            <Fact label="Longest wait">{oldest > 0 ? duration(oldest) : '–'}</Fact>
            <Fact label="Steps per second">{compact(runs.reduce((sum, entry) => sum + entry.stepsPerSecond, 0))}</Fact>
            {candidates > 0 && <Fact label="Candidates per second">{compact(candidates)}</Fact>}
            <Fact label="Cores of runs" hint="Cores that the starting and running runs train on">
              {(pools.data ?? []).reduce((sum, pool) => sum + pool.cores * active(pool), 0)}
            </Fact>
            <Fact label="Running sessions">{(list.data ?? []).filter((session) => session.state === SessionState.RUNNING).length}</Fact>
          </Group>
          <SimpleGrid cols={{ base: 1, lg: pools.data.length > 1 ? 2 : 1 }}>
            {pools.data.map((pool) => (
              <PoolPanel key={pool.name} pool={pool} byName={byName} now={now} />
            ))}
          </SimpleGrid>
          <Waiting sessions={(list.data ?? []).filter((session) => session.state === SessionState.PENDING).sort((a, b) => (a.queue?.place ?? 1e9) - (b.queue?.place ?? 1e9))} now={now} />
          <Spending sessions={list.data ?? []} now={now} />
          <Usage />
        </>
      )}
    </Stack>
  )
}

const active = (pool: Pool) => pool.runs.filter((entry) => entry.run?.state === RunState.RUNNING || entry.run?.state === RunState.STARTING).length

function PoolPanel({ pool, byName, now }: { pool: Pool; byName: Map<string, Session>; now: number }) {
  const busy = active(pool)
  const queued = pool.runs.length - busy
  return (
    <Panel
      pad="sm"
      title={
        <Group gap="xs">
          {`Pool ${pool.name}`}
          {pool.default && (
            <Badge size="xs" variant="light" color="gray">
              default
            </Badge>
          )}
        </Group>
      }
      right={
        <Text size="xs" c="dimmed" className="numbers">
          {[`${pool.cores} ${pool.cores === 1 ? 'core' : 'cores'} a run`, pool.memoryBytes > 0n ? `at most ${bytes(pool.memoryBytes)}` : '', pool.maxRuns > 0 ? `at most ${pool.maxRuns} at a time` : ''].filter(Boolean).join(' · ')}
        </Text>
      }
    >
      {pool.maxRuns > 0 && (
        <Progress.Root size="lg" mb="xs" aria-label={`${busy} of ${pool.maxRuns} places are in use`}>
          <Progress.Section value={(100 * Math.min(busy, pool.maxRuns)) / pool.maxRuns} aria-label="in use" />
        </Progress.Root>
      )}
      <Text size="xs" c="dimmed" className="numbers" mb={pool.runs.length > 0 ? 4 : 0}>
        {`${busy} active${pool.maxRuns > 0 ? ` of ${pool.maxRuns}` : ''}, ${queued} queued`}
      </Text>
      {pool.runs.length > 0 && (
        <Table.ScrollContainer minWidth={620}>
          <Table fz="sm" verticalSpacing={6}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>Session</Table.Th>
                <Table.Th>State</Table.Th>
                <Table.Th>Work</Table.Th>
                <Table.Th ta="right">Speed</Table.Th>
                <Table.Th ta="right">Since</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {pool.runs.map((entry) => (
                <RunRow key={entry.run?.name} entry={entry} byName={byName} now={now} />
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      )}
    </Panel>
  )
}

function RunRow({ entry, byName, now }: { entry: PoolRun; byName: Map<string, Session>; now: number }) {
  const { run } = entry
  if (run === undefined) return null
  const name = run.name.split('/runs/')[0]!
  const session = byName.get(name)
  const id = lastPart(name)
  const [word, color] = STATES[run.state] ?? ['unknown', 'gray']
  const reason = run.conditions.map((condition) => condition.message).join(' ')
  const since = seconds(run.startTime ?? run.createTime)
  return (
    <Table.Tr>
      <Table.Td maw={260}>
        <Anchor component={Link} to="/sessions/$id" params={{ id } as never} size="sm" className="one-line" display="block">
          {session?.spec?.intent.slice(0, 200) || id}
        </Anchor>
        <Text size="xs" c="dimmed" className="one-line">
          {[id, lastPart(run.name), run.attempt > 1 ? `attempt ${run.attempt}` : '', session?.owner].filter(Boolean).join(' · ')}
        </Text>
      </Table.Td>
      <Table.Td maw={220}>
        <Badge variant="light" color={color} className="whole" leftSection={run.state === RunState.RUNNING ? <span className="pulse" /> : undefined}>
          {word}
        </Badge>
        {reason !== '' && (
          <Tooltip label={reason.slice(0, 600)} multiline maw={360}>
            <Text size="xs" className="one-line" tabIndex={0}>
              {reason}
            </Text>
          </Tooltip>
        )}
      </Table.Td>
      <Table.Td>
        <Text size="sm">{entry.environment !== '' ? environmentId(entry.environment) : run.state === RunState.QUEUED ? '–' : 'idle'}</Text>
        <Text size="xs" c="dimmed">
          {run.assignment === '' ? '' : run.assignment.replace(`${name}/`, '').replace('iterations/', 'iteration ').replace('/assignments/', ', ')}
        </Text>
      </Table.Td>
      <Table.Td ta="right" className="numbers">
        {entry.candidatesPerSecond > 0 ? `${compact(entry.candidatesPerSecond)} candidates/s` : entry.stepsPerSecond > 0 ? `${compact(entry.stepsPerSecond)} steps/s` : '–'}
      </Table.Td>
      <Table.Td ta="right" className="numbers">
        {since === null ? '–' : duration(Math.max(0, now - since))}
      </Table.Td>
    </Table.Tr>
  )
}

/** Sessions that have not started yet, and why. */
function Waiting({ sessions, now }: { sessions: Session[]; now: number }) {
  if (sessions.length === 0) return null
  return (
    <Panel title="Sessions that wait" pad="sm">
      <Table fz="sm" verticalSpacing={6} aria-label="Sessions that wait">
        <Table.Tbody>
          {sessions.slice(0, 100).map((session) => {
            const since = seconds(session.createTime)
            return (
              <Table.Tr key={session.name}>
                <Table.Td>
                  <Anchor component={Link} to="/sessions/$id" params={{ id: lastPart(session.name) } as never} size="sm" className="plain">
                    {session.spec?.intent.slice(0, 200)}
                  </Anchor>
                  <Text size="xs" c="dimmed" className="plain">
                    {session.queue?.reason || session.stateReason || 'not started yet'}
                  </Text>
                </Table.Td>
                <Table.Td className="numbers one-line">{placeOf(session)}</Table.Td>
                <Table.Td ta="right" className="numbers one-line">{since === null ? '' : duration(Math.max(0, now - since))}</Table.Td>
              </Table.Tr>
            )
          })}
        </Table.Tbody>
      </Table>
    </Panel>
  )
}

const RANGES: Record<string, number> = { '24 hours': 86_400, '7 days': 7 * 86_400, '30 days': 30 * 86_400 }
const KEYS: Record<string, (session: Session) => string> = {
  model: (session) => session.spec?.model || 'the default',
  owner: (session) => session.owner || 'nobody',
}

function Spending({ sessions, now }: { sessions: Session[]; now: number }) {
  const [range, setRange] = useState('7 days')
  const [by, setBy] = useState('model')
  const rows = spendBy(sessions, KEYS[by]!, now - RANGES[range]!)
  const total = rows.reduce((sum, row) => sum + row.dollars, 0)
  const most = Math.max(...rows.map((row) => row.dollars), 1e-9)
  return (
    <Panel
      title="Spend on models"
      pad="sm"
      right={
        <Group gap="xs">
          <SegmentedControl size="xs" aria-label="By" data={Object.keys(KEYS)} value={by} onChange={setBy} />
          <SegmentedControl size="xs" aria-label="Time" data={Object.keys(RANGES)} value={range} onChange={setRange} />
        </Group>
      }
    >
      {rows.length === 0 ? (
        <Text size="sm" c="dimmed">
          No calls of a language model in this time.
        </Text>
      ) : (
        <Stack gap="xs">
          <Text size="sm" fw={600} className="numbers">{`$${total.toFixed(2)}`}</Text>
          <Table.ScrollContainer minWidth={480}>
            <Table fz="sm" verticalSpacing={5}>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th tt="capitalize">{by}</Table.Th>
                  <Table.Th ta="right">Sessions</Table.Th>
                  <Table.Th ta="right">Calls</Table.Th>
                  <Table.Th ta="right">Tokens</Table.Th>
                  <Table.Th ta="right">Cost</Table.Th>
                  <Table.Th aria-label="Share" w="30%" />
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {rows.map((row) => (
                  <Table.Tr key={row.key}>
                    <Table.Td className="plain">{row.key}</Table.Td>
                    <Table.Td ta="right" className="numbers">{row.sessions}</Table.Td>
                    <Table.Td ta="right" className="numbers">{row.requests.toLocaleString('en')}</Table.Td>
                    <Table.Td ta="right" className="numbers">{compact(row.tokens)}</Table.Td>
                    <Table.Td ta="right" className="numbers">
                      {row.unknown === row.sessions ? 'unknown price' : `$${row.dollars.toFixed(2)}${row.unknown > 0 ? ' or more' : ''}`}
                    </Table.Td>
                    <Table.Td>
                      <Progress size="sm" value={(100 * row.dollars) / most} aria-label={`${row.key}: $${row.dollars.toFixed(2)}`} />
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        </Stack>
      )}
      {sessions.length >= 5_000 && <Alert p="xs">Only the newest 5,000 sessions are counted.</Alert>}
    </Panel>
  )
}
