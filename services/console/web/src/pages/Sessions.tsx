// All sessions: a live table with filters and search. Rows are drawn only where they are visible.
import { Box, Button, Checkbox, CloseButton, Group, Paper, Select, Skeleton, Stack, Text, TextInput, Title } from '@mantine/core'
import { modals } from '../components/confirm'
import { useDebouncedValue, useMediaQuery } from '@mantine/hooks'
import { notifications } from '@mantine/notifications'
import { IconListSearch, IconScale, IconSearch, IconTrash } from '@tabler/icons-react'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { Link, useNavigate, useRouter, useSearch } from '@tanstack/react-router'
import { useWindowVirtualizer } from '@tanstack/react-virtual'
import { type MouseEvent, memo, useCallback, useEffect, useMemo, useRef, useState } from 'react'

import { errorText, sessions } from '../api/clients'
import { everySession } from '../api/everySession'
import { Command, Empty, Problem, StateBadge } from '../components/basics'
import type { Session } from '../gen/dressage/v1/session_pb'
import { SessionState } from '../gen/dressage/v1/session_pb'
import { ago, dollars, duration, environmentId, isOver, lastPart, phaseName, goalNumber, placeOf, scoreText, seconds, stateName } from '../lib/format'
import { MOST_ITEMS } from '../lib/compare'

export type SessionsSearch = { q?: string; state?: number; method?: string; env?: string; deleted?: boolean }

const STATES = [1, 2, 3, 4, 5, 6].map((state) => ({ value: String(state), label: stateName(state as SessionState) }))

function without<K extends keyof SessionsSearch>(old: SessionsSearch, key: K, value: SessionsSearch[K]): SessionsSearch {
  const { [key]: _, ...rest } = old
  return value === undefined ? rest : { ...rest, [key]: value }
}

/** Keep the objects of ended sessions that have not changed: their rows are not drawn again, and nothing is compared in depth. */
function withKnown(known: unknown, fresh: unknown): Session[] {
  const before = new Map((known as Session[] | undefined)?.map((session) => [session.name, session]))
  return (fresh as Session[]).map((session) => {
    const old = before.get(session.name)
    const same = old !== undefined && isOver(old.state) && old.state === session.state && seconds(old.updateTime) === seconds(session.updateTime) && seconds(old.deleteTime) === seconds(session.deleteTime)
    return same ? old : session
  })
}

export function Sessions() {
  const search = useSearch({ from: '/' })
  const navigate = useNavigate({ from: '/' })
  const client = useQueryClient()
  const [text, setText] = useState(search.q ?? '')
  const [settled] = useDebouncedValue(text, 200)
  const [chosen, setChosen] = useState<Set<string>>(new Set())
  const list = useQuery({
    queryKey: ['sessions', search.deleted === true],
    queryFn: ({ signal }) => everySession(search.deleted === true, signal),
    structuralSharing: withKnown,
    refetchInterval: 2_000,
  })
  useEffect(() => {
    if (settled !== (search.q ?? '')) void navigate({ search: (old) => ({ ...old, q: settled }), replace: true })
  }, [settled, navigate, search.q])

  const all = useMemo(() => (list.data ?? []).filter((session) => search.deleted !== true || session.deleteTime !== undefined), [list.data, search.deleted])
  const shown = useMemo(() => {
    const words = (search.q ?? '').toLowerCase().split(/\s+/).filter(Boolean)
    return all.filter((session) => {
      if (search.state !== undefined && session.state !== search.state) return false
      if (search.method !== undefined && session.method !== search.method) return false
      if (search.env !== undefined && session.spec?.environment !== search.env) return false
      if (words.length === 0) return true
      const hay = `${session.name} ${session.spec?.intent.slice(0, 2000)} ${session.spec?.environment} ${session.spec?.model} ${session.owner}`.toLowerCase()
      return words.every((word) => hay.includes(word))
    })
  }, [all, search])
  const methods = [...new Set(all.map((session) => session.method))].sort()
  const environments = [...new Set(all.map((session) => session.spec?.environment ?? ''))].filter(Boolean).sort()
  const filtered = search.q !== undefined || search.state !== undefined || search.method !== undefined || search.env !== undefined
  const counts = useMemo(() => {
    const running = all.filter((session) => session.state === SessionState.RUNNING).length
    const waiting = all.filter((session) => session.awaitingApproval > 0 && session.state === SessionState.RUNNING).length
    return { running, waiting }
  }, [all])

  const each = async (what: string, act: (name: string) => Promise<unknown>) => {
    const names = [...chosen]
    const results = await Promise.allSettled(names.map(act))
    const failed = results.filter((result) => result.status === 'rejected')
    if (failed.length > 0) notifications.show({ color: 'red', title: `${failed.length} not ${what}`, message: errorText(failed[0]!.reason) })
    if (failed.length < names.length) notifications.show({ message: `${names.length - failed.length} ${what}` })
    setChosen(new Set())
    await client.invalidateQueries({ queryKey: ['sessions'] })
  }

  return (
    <Stack gap="md">
      <Group justify="space-between" align="flex-end">
        <Box>
          <Title order={1} size="h3">
            {search.deleted ? 'Trash' : 'Sessions'}
          </Title>
          <Text size="sm" c="dimmed" className="numbers">
            {list.data === undefined
              ? 'loading'
              : search.deleted
                ? `${all.length} deleted ${all.length === 1 ? 'session' : 'sessions'}`
                : `${all.length} ${all.length === 1 ? 'session' : 'sessions'}, ${counts.running} running${counts.waiting > 0 ? `, ${counts.waiting} waiting for approval` : ''}`}
          </Text>
        </Box>
        <Button
          variant="subtle"
          color="gray"
          size="compact-sm"
          leftSection={<IconTrash size={16} />}
          onClick={() => {
            setChosen(new Set())
            void navigate({ search: search.deleted ? {} : { deleted: true } })
          }}
        >
          {search.deleted ? 'All sessions' : 'Trash'}
        </Button>
      </Group>
      <Group gap="xs" align="flex-end">
        <TextInput
          aria-label="Search"
          placeholder="Search intents, ids, models, owners"
          leftSection={<IconSearch size={16} />}
          rightSection={text === '' ? null : <CloseButton size="sm" onClick={() => setText('')} aria-label="Clear the search" />}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          flex="1 1 220px"
        />
        <Select
          aria-label="State"
          placeholder="Any state"
          data={STATES}
          clearable
          w={140}
          value={search.state === undefined ? null : String(search.state)}
          onChange={(value) => void navigate({ search: (old: SessionsSearch) => without(old, 'state', value === null ? undefined : Number(value)) })}
        />
        <Select
          aria-label="Method"
          placeholder="Any method"
          data={methods}
          clearable
          w={140}
          value={search.method ?? null}
          onChange={(value) => void navigate({ search: (old: SessionsSearch) => without(old, 'method', value === null ? undefined : value) })}
        />
        <Select
          aria-label="Environment"
          placeholder="Any environment"
          data={environments.map((value) => ({ value, label: environmentId(value) }))}
          clearable
          searchable
          w={200}
          value={search.env ?? null}
          onChange={(value) => void navigate({ search: (old: SessionsSearch) => without(old, 'env', value === null ? undefined : value) })}
        />
      </Group>
      {chosen.size > 0 && (
        <Paper withBorder p="xs" radius="md">
          <Group gap="xs">
            <Text size="sm" className="numbers">{`${chosen.size} selected`}</Text>
            {search.deleted ? (
              <Button size="compact-sm" variant="light" onClick={() => void each('restored', (name) => sessions.undeleteSession({ name }))}>
                Restore
              </Button>
            ) : (
              <>
              <Button
                component={Link}
                to="/compare"
                search={{ of: [...chosen].slice(0, MOST_ITEMS).map(lastPart).join(',') } as never}
                size="compact-sm"
                variant="light"
                leftSection={<IconScale size={15} />}
              >
                {chosen.size > MOST_ITEMS ? `Compare the first ${MOST_ITEMS}` : 'Compare'}
              </Button>
              <Button
                size="compact-sm"
                color="red"
                variant="light"
                onClick={() =>
                  modals.confirm({
                    title: `Delete ${chosen.size} ${chosen.size === 1 ? 'session' : 'sessions'}?`,
                    text: 'Running ones are cancelled. Deleted sessions stay in the trash, from which they can be restored.',
                    action: 'Delete',
                    onConfirm: () => each('deleted', (name) => sessions.deleteSession({ name, force: true })),
                  })
                }
              >
                Delete
              </Button>
              </>
            )}
            <Button size="compact-sm" variant="subtle" color="gray" onClick={() => setChosen(new Set())}>
              Clear
            </Button>
          </Group>
        </Paper>
      )}
      {list.error !== null && <Problem error={list.error} title="The sessions cannot be listed" />}
      {list.data === undefined ? (
        list.error === null && <Skeleton h={240} radius="md" />
      ) : shown.length === 0 ? (
        <NothingShown filtered={filtered} trash={search.deleted === true} />
      ) : (
        <SessionTable rows={shown} chosen={chosen} onChoose={setChosen} />
      )}
    </Stack>
  )
}

function NothingShown({ filtered, trash }: { filtered: boolean; trash: boolean }) {
  if (trash) return <Empty icon={<IconTrash size={22} />} title="The trash is empty" />
  if (filtered) {
    return (
      <Empty icon={<IconListSearch size={22} />} title="No session matches">
        Change the filters or the search.
      </Empty>
    )
  }
  return (
    <Empty icon={<IconListSearch size={22} />} title="No sessions yet">
      <Stack gap="xs">
        <Text size="sm">Describe a behaviour; Dressage trains a policy for it. No key is needed for the built-in author.</Text>
        <Box>
          <Button component={Link} to="/new">
            New session
          </Button>
        </Box>
        <Command text='dressage run "hop forward" --env Hopper-v5' />
      </Stack>
    </Empty>
  )
}

const NARROW = { gridTemplateColumns: '36px 1fr' }
const WIDE = { gridTemplateColumns: '28px minmax(200px, 3fr) 150px minmax(120px, 1.1fr) 100px 170px 70px minmax(70px, 0.7fr) 96px' }

function SessionTable({ rows, chosen, onChoose }: { rows: Session[]; chosen: Set<string>; onChoose: (chosen: Set<string>) => void }) {
  const router = useRouter()
  const narrow = useMediaQuery('(max-width: 60em)') === true
  const body = useRef<HTMLDivElement>(null)
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => (narrow ? 104 : 58),
    overscan: 8,
    scrollMargin: body.current?.offsetTop ?? 0,
    getItemKey: (index) => rows[index]!.name,
  })
  useEffect(() => virtual.measure(), [narrow, virtual])
  // The rows' times advance with the list, not with each step of scrolling.
  const now = useMemo(() => Date.now() / 1000, [rows])
  const latest = useRef(chosen)
  latest.current = chosen
  const toggle = useCallback(
    (name: string) => {
      const next = new Set(latest.current)
      if (!next.delete(name)) next.add(name)
      onChoose(next)
    },
    [onChoose],
  )
  // Links of rows are plain ones: the router's own would follow the address in each row.
  const sessionOf = (event: MouseEvent) => (event.target as Element).closest<HTMLElement>('a[data-session]')?.dataset.session
  const follow = (event: MouseEvent) => {
    const id = sessionOf(event)
    if (id === undefined || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    void router.navigate({ to: '/sessions/$id', params: { id } })
  }
  const prepare = (event: MouseEvent) => {
    const id = sessionOf(event)
    if (id !== undefined) void router.preloadRoute({ to: '/sessions/$id', params: { id } })
  }
  const every = rows.every((row) => chosen.has(row.name))
  return (
    <Paper withBorder radius="md" role="table" aria-label="Sessions" aria-rowcount={rows.length} onClick={follow} onMouseOver={prepare}>
      <Box role="rowgroup">
        <Box role="row" className="table-head" style={narrow ? NARROW : WIDE}>
          <Box role="columnheader">
            <Checkbox
              size="xs"
              aria-label="Select all"
              checked={every}
              indeterminate={!every && chosen.size > 0}
              onChange={() => onChoose(every ? new Set() : new Set(rows.map((row) => row.name)))}
            />
          </Box>
          {(narrow ? ['Session'] : ['Intent', 'State', 'Environment', 'Method', 'Score', 'Cost', 'Owner', 'Started']).map((name) => (
            <Text key={name} role="columnheader" size="xs" c="dimmed" fw={600}>
              {name}
            </Text>
          ))}
        </Box>
      </Box>
      <Box ref={body} role="rowgroup" pos="relative" h={virtual.getTotalSize()}>
        {virtual.getVirtualItems().map((item) => (
          <div key={item.key} style={{ height: item.size, transform: `translateY(${item.start - virtual.options.scrollMargin}px)` }} role="row" aria-rowindex={item.index + 1} className="table-row">
            <Row session={rows[item.index]!} narrow={narrow} now={now} chosen={chosen.has(rows[item.index]!.name)} onToggle={toggle} />
          </div>
        ))}
      </Box>
    </Paper>
  )
}

type RowProps = { session: Session; narrow: boolean; now: number; chosen: boolean; onToggle: (name: string) => void }

/** Rows are drawn while people scroll: they have plain elements, and the table follows their links. */
const Row = memo(function Row({ session, narrow, now, chosen, onToggle }: RowProps) {
  const id = lastPart(session.name)
  const intent = session.spec?.intent ?? ''
  const environment = environmentId(session.spec?.environment ?? '')
  const check = (
    <div role="cell">
      <input type="checkbox" className="row-check" aria-label={`Select ${id}`} checked={chosen} onChange={() => onToggle(session.name)} />
    </div>
  )
  const title = (
    <div role="cell" className="row-title">
      <a href={`/sessions/${id}`} data-session={id} className="row-link one-line row-intent" title={intent.slice(0, 500)}>
        {intent.slice(0, 300) || id}
      </a>
      <div className="one-line row-note">{narrow ? `${environment}, ${session.method}` : `${id} · ${session.spec?.model ?? ''}`}</div>
      {narrow && (
        <div className="row-facts">
          <State session={session} />
          <Score session={session} />
        </div>
      )}
    </div>
  )
  if (narrow) {
    return (
      <div className="table-cells" style={NARROW}>
        {check}
        {title}
      </div>
    )
  }
  const start = seconds(session.startTime ?? session.createTime)
  const end = seconds(session.endTime)
  return (
    <div className="table-cells" style={WIDE}>
      {check}
      {title}
      <div role="cell">
        <State session={session} />
      </div>
      <div role="cell" className="one-line">
        {environment}
      </div>
      <div role="cell">{session.method}</div>
      <div role="cell">
        <Score session={session} />
      </div>
      <div role="cell" className="numbers">
        {dollars(session.cost)}
      </div>
      <div role="cell" className="one-line" title={session.owner}>
        {session.owner || '–'}
      </div>
      <div role="cell" className="numbers row-note" title={start === null ? '' : new Date(start * 1000).toLocaleString()}>
        {start === null ? '–' : ago(start, now)}
        <br />
        {session.startTime === undefined || start === null ? '' : duration((end ?? now) - start)}
      </div>
    </div>
  )
})

function State({ session }: { session: Session }) {
  const running = session.state === SessionState.RUNNING
  const waits = running && session.awaitingApproval > 0
  const note = session.state === SessionState.PENDING ? placeOf(session) : running && !waits ? `iteration ${session.currentIteration}, ${phaseName(session.phase)}` : ''
  return (
    <div>
      <StateBadge state={session.state} waiting={waits} />
      {note !== '' && (
        <div className="numbers one-line row-note" title={session.queue?.reason || session.stateReason}>
          {note}
        </div>
      )}
    </div>
  )
}

function Score({ session }: { session: Session }) {
  const value = session.bestScore
  if (value === undefined) return <span className="row-note">{isOver(session.state) ? '–' : ''}</span>
  const judged = session.method === 'reward'
  return (
    <div className="row-score">
      <b className="numbers">{scoreText(value, session.method)}</b>
      {judged && (
        <span className={session.state === SessionState.SUCCEEDED ? 'row-bar passed' : 'row-bar'} role="img" aria-label={`Score ${value.toFixed(2)}`}>
          <span style={{ width: `${Math.min(Math.max(value, 0), 1) * 100}%` }} />
        </span>
      )}
      <span className="numbers row-note row-goal">{`of ${goalNumber(session.goal)}`}</span>
    </div>
  )
}
