// One session: its state in the head, everything else in tabs that load when they are opened.
import { Alert, Box, Button, Group, Menu, Select, Skeleton, Stack, Tabs, Text, Title, Tooltip } from '@mantine/core'
import { useInterval, useMediaQuery } from '@mantine/hooks'
import { notifications } from '@mantine/notifications'
import { IconAlertTriangle, IconCloudOff, IconDotsVertical, IconHourglass, IconPlayerPlay, IconPlayerStop, IconSearchOff, IconTrash } from '@tabler/icons-react'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { lazy, Suspense, useState } from 'react'

import { errorText, isNotFound, sessions } from '../../api/clients'
import { Empty, Fact, Plain, Problem, StateBadge } from '../../components/basics'
import { modals } from '../../components/confirm'
import type { Session } from '../../gen/dressage/v1/session_pb'
import { SessionState } from '../../gen/dressage/v1/session_pb'
import { runCommand } from '../../lib/command'
import { compact, dollars, duration, environmentId, goalNumber, isOver, placeOf, scoreText, seconds, short } from '../../lib/format'
import { watchConnection } from '../../live/connection'
import type { Live } from '../../live/useSession'
import { useLiveSession } from '../../live/useSession'
import { Approval } from './Approval'
import { useIterations, useSession } from './data'
import { Phases } from './Phases'
import { type Tab, type TabProps, TABS } from './tabs'

const PANELS: Record<Tab, React.LazyExoticComponent<(props: TabProps) => React.ReactNode>> = {
  overview: lazy(() => import('./Overview').then((module) => ({ default: module.Overview }))),
  curves: lazy(() => import('./Curves').then((module) => ({ default: module.Curves }))),
  rollouts: lazy(() => import('./Rollouts').then((module) => ({ default: module.Rollouts }))),
  code: lazy(() => import('./CodeTab').then((module) => ({ default: module.CodeTab }))),
  judgment: lazy(() => import('./JudgmentTab').then((module) => ({ default: module.JudgmentTab }))),
  lineage: lazy(() => import('./Lineage').then((module) => ({ default: module.LineageTab }))),
  conversation: lazy(() => import('./Conversation').then((module) => ({ default: module.Conversation }))),
  artifacts: lazy(() => import('./Artifacts').then((module) => ({ default: module.Artifacts }))),
  events: lazy(() => import('./Events').then((module) => ({ default: module.Events }))),
}

export function SessionPage() {
  const { id } = useParams({ from: '/sessions/$id' })
  const name = `sessions/${id}`
  const resource = useSession(name)
  const live = useLiveSession(name)
  if (isNotFound(resource.error)) {
    return (
      <Empty icon={<IconSearchOff size={22} />} title="There is no such session">
        It may have been started on another server. <Link to="/">All sessions</Link>
      </Empty>
    )
  }
  if (resource.data === undefined) return resource.error === null ? <Skeleton h={320} radius="md" /> : <Problem error={resource.error} />
  return <Loaded key={name} name={name} session={resource.data} live={live} />
}

function Loaded({ name, session, live }: { name: string; session: Session; live: Live }) {
  const { tab = 'overview', iteration: chosen } = useSearch({ from: '/sessions/$id' })
  const navigate = useNavigate({ from: '/sessions/$id' })
  const iterations = useIterations(name)
  const narrow = useMediaQuery('(max-width: 48em)') === true
  const best = Number(session.bestIteration.split('/').pop() || 0)
  const current = isOver(session.state) && best > 0 ? best : session.currentIteration
  const iteration = chosen ?? current
  const Panel = PANELS[tab]
  const numbers = iterations.data?.map((entry) => entry.number) ?? (current > 0 ? [current] : [])
  const go = (next: { tab?: Tab; iteration?: number }) => void navigate({ search: (old) => ({ ...old, ...next }), replace: true })
  return (
    <Stack gap="md">
      <Head name={name} session={session} live={live} />
      {session.awaitingApproval > 0 && !isOver(session.state) && <Approval key={session.awaitingApproval} name={name} session={session} />}
      <Tabs value={tab} onChange={(value) => value !== null && go({ tab: value as Tab })} keepMounted={false}>
        <Group justify="space-between" wrap="wrap-reverse" gap="xs" align="flex-end">
          {narrow ? (
            <Select aria-label="Part of the session" data={TABS.map((value) => ({ value, label: value[0]!.toUpperCase() + value.slice(1) }))} value={tab} onChange={(value) => value !== null && go({ tab: value as Tab })} allowDeselect={false} flex={1} />
          ) : (
            <Tabs.List flex={1}>
              {TABS.map((entry) => (
                <Tabs.Tab key={entry} value={entry} tt="capitalize">
                  {entry}
                </Tabs.Tab>
              ))}
            </Tabs.List>
          )}
          {numbers.length > 0 && (
            <Select
              aria-label="Iteration"
              w={{ base: 185, sm: 220 }}
              size="sm"
              allowDeselect={false}
              data={numbers.map((number) => {
                const entry = iterations.data?.find((candidate) => candidate.number === number)
                const value = entry?.score ?? live.session.iterations.get(number)?.score
                return { value: String(number), label: `Iteration ${number}${value == null ? '' : `: ${scoreText(value, session.method)}`}${number === best && !narrow ? ' (best)' : ''}` }
              })}
              value={String(iteration)}
              onChange={(value) => value !== null && go({ iteration: Number(value) })}
            />
          )}
        </Group>
        <Box pt="md" role={narrow ? 'region' : 'tabpanel'} aria-label={tab}>
          <Suspense fallback={<Skeleton h={260} radius="md" />}>
            <Panel name={name} session={session} live={live} iteration={iteration} />
          </Suspense>
        </Box>
      </Tabs>
    </Stack>
  )
}

function Head({ name, session, live }: { name: string; session: Session; live: Live }) {
  const client = useQueryClient()
  const navigate = useNavigate()
  const [now, setNow] = useState(Date.now() / 1000)
  useInterval(() => setNow(Date.now() / 1000), 1_000, { autoInvoke: true })
  const over = isOver(session.state)
  const start = seconds(session.startTime)
  const end = seconds(session.endTime)
  const spec = session.spec
  const act = useMutation({
    mutationFn: async (what: 'cancel' | 'resume' | 'delete' | 'undelete') => {
      if (what === 'cancel') return sessions.cancelSession({ name, reason: 'cancelled in the console' })
      if (what === 'delete') return sessions.deleteSession({ name, force: true })
      if (what === 'undelete') return sessions.undeleteSession({ name })
      const resumed = await sessions.resumeSession({ name, requestId: crypto.randomUUID() })
      ;(await watchConnection()).revive(name)
      return resumed
    },
    onSuccess: async (_, what) => {
      await client.invalidateQueries({ queryKey: ['session', name] })
      if (what === 'delete') await navigate({ to: '/' })
    },
    onError: (error) => notifications.show({ color: 'red', title: 'Not done', message: errorText(error) }),
  })
  const long = (spec?.intent.length ?? 0) > 240
  const [whole, setWhole] = useState(false)
  return (
    <Stack gap="sm">
      <Group justify="space-between" align="flex-start" wrap="nowrap">
        <Box miw={0}>
          <Group gap="xs" mih={26}>
            <StateBadge state={session.state} waiting={!over && session.awaitingApproval > 0} />
            {session.deleteTime !== undefined && <Text size="xs" c="red">in the trash</Text>}
            {live.status === 'offline' && (
              <Tooltip label="The page reconnects by itself and loses nothing">
                <Group gap={4}>
                  <IconCloudOff size={14} />
                  <Text size="xs">reconnecting</Text>
                </Group>
              </Tooltip>
            )}
            <Text size="xs" c="dimmed" className="one-line">{`${name.split('/')[1]} · ${environmentId(spec?.environment ?? '')} · ${session.method} · ${spec?.model}`}</Text>
          </Group>
        </Box>
        <Group gap={4} wrap="nowrap">
          {!over && (
            <Button
              variant="light"
              color="red"
              size="compact-sm"
              leftSection={<IconPlayerStop size={15} />}
              onClick={() =>
                modals.confirm({ title: 'Cancel this session?', text: 'Its results so far are kept, and it can be resumed.', action: 'Cancel it', onConfirm: () => act.mutateAsync('cancel') })
              }
            >
              Cancel
            </Button>
          )}
          {over && session.deleteTime === undefined && (
            <Button variant="light" size="compact-sm" leftSection={<IconPlayerPlay size={15} />} loading={act.isPending} onClick={() => act.mutate('resume')}>
              Resume
            </Button>
          )}
          <Menu position="bottom-end" withinPortal>
            <Menu.Target>
              <Button variant="subtle" color="gray" size="compact-sm" px={6} aria-label="More actions">
                <IconDotsVertical size={16} />
              </Button>
            </Menu.Target>
            <Menu.Dropdown>
              <Menu.Item component={Link} to="/new" search={{ from: name.split('/')[1] } as never}>
                Start a similar session
              </Menu.Item>
              <Menu.Item onClick={() => spec !== undefined && void navigator.clipboard.writeText(runCommand(spec))}>Copy as a command</Menu.Item>
              <Menu.Item onClick={() => void navigator.clipboard.writeText(`dressage report ${name.split('/')[1]} --html --out report.html`)}>Copy the command of its report</Menu.Item>
              <Menu.Divider />
              {session.deleteTime === undefined ? (
                <Menu.Item
                  color="red"
                  leftSection={<IconTrash size={15} />}
                  onClick={() =>
                    modals.confirm({ title: 'Delete this session?', text: 'It stays in the trash, from which it can be restored.', action: 'Delete', onConfirm: () => act.mutateAsync('delete') })
                  }
                >
                  Delete
                </Menu.Item>
              ) : (
                <Menu.Item onClick={() => act.mutate('undelete')}>Restore</Menu.Item>
              )}
            </Menu.Dropdown>
          </Menu>
        </Group>
      </Group>
      <Box>
        <Title order={1} size="h3" className="plain" lineClamp={whole ? undefined! : 3}>
          {whole ? spec?.intent : spec?.intent.slice(0, 600)}
        </Title>
        {long && (
          <Button variant="subtle" size="compact-xs" onClick={() => setWhole(!whole)}>
            {whole ? 'less' : 'the whole intent'}
          </Button>
        )}
      </Box>
      <Group gap="xl" className="facts">
        <Fact label="Score" hint={`Goal: ${session.goal}`}>
          {session.bestScore === undefined ? '–' : scoreText(session.bestScore, session.method)}
          <Text span size="xs" c="dimmed">{` of ${goalNumber(session.goal)}`}</Text>
        </Fact>
        {session.confirmation !== undefined && <Fact label="On fresh seeds">{session.confirmation.score.toFixed(2)}</Fact>}
        {session.report !== undefined && <Fact label="On report seeds">{short(session.report.mean)}</Fact>}
        {session.returns !== undefined && (
          <Fact label="Return (random policy)">{`${short(session.returns.mean)} (${short(session.returns.randomMean)})`}</Fact>
        )}
        <Fact label="Time">{start === null ? '–' : duration((end ?? now) - start)}</Fact>
        <Fact label="Steps">{compact(session.envSteps)}</Fact>
        {session.episodes > 0n && <Fact label="Episodes">{compact(session.episodes)}</Fact>}
        <Fact label="Model calls">{Number(session.cost?.requests ?? 0n)}</Fact>
        <Fact label="Tokens">{compact((session.cost?.inputTokens ?? 0n) + (session.cost?.outputTokens ?? 0n))}</Fact>
        <Fact label="Cost">{dollars(session.cost)}</Fact>
      </Group>
      {session.state === SessionState.PENDING && (
        <Alert color="blue" icon={<IconHourglass size={18} />} p="sm" role="status">
          <Text size="sm" className="plain">
            {session.queue === undefined ? session.stateReason || 'Not started yet.' : `Waits in the queue, ${placeOf(session)}: ${session.queue.reason}.`}
          </Text>
        </Alert>
      )}
      <Phases session={session} live={live} />
      {(session.failure !== undefined || (session.stateReason !== '' && ![SessionState.SUCCEEDED, SessionState.PENDING].includes(session.state))) && (
        <Alert color={session.state === SessionState.FAILED ? 'red' : session.state === SessionState.CANCELLED ? 'gray' : 'yellow'} icon={<IconAlertTriangle size={18} />} p="sm">
          <Plain className="plain sentence">{session.failure?.message || session.stateReason}</Plain>
        </Alert>
      )}
    </Stack>
  )
}

