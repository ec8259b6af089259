// Recorded episodes: videos side by side under one clock, with the verdict of each judge, and a person's score.
import { ActionIcon, Badge, Box, Button, Group, NumberInput, Pagination, Select, SimpleGrid, Skeleton, Slider, Stack, Switch, Text, Textarea, Tooltip } from '@mantine/core'
import { useDisclosure } from '@mantine/hooks'
import { notifications } from '@mantine/notifications'
import { IconCube, IconDownload, IconMovie, IconPlayerPause, IconPlayerPlay, IconPlayerTrackPrev } from '@tabler/icons-react'
import { useMutation, useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useCallback, useEffect, useMemo, useRef, useState } from 'react'

import { artifacts, artifactUrl, errorText, sessions } from '../../api/clients'
import { Empty, pageKeys, Panel, Problem } from '../../components/basics'
import type { Marker } from '../../components/Chart'
import type { Rollout } from '../../gen/dressage/v1/session_pb'
import { JudgeKind } from '../../gen/dressage/v1/session_pb'
import { useDraft } from '../../lib/draft'
import { compact, short } from '../../lib/format'
import { Clock } from '../../scene/playback'
import type { Recorded } from './data'
import { filmOf, recordingOf, rolloutsOf, useAssignments } from './data'
import { ProgramRun } from './ProgramRun'
import type { TabProps } from './tabs'

/** MuJoCo, three.js and the reader of recordings load when somebody opens 3D. */
const Scene3D = lazy(() => import('./Scene3D').then((module) => ({ default: module.Scene3D })))
/** The reader of recordings, too. */
const Fields = lazy(() => import('./Fields').then((module) => ({ default: module.Fields })))

const PER_PAGE = 12
/** Drawing a long episode in software takes a minute. */
const RENDER_MS = 300_000
const KINDS = [
  [JudgeKind.CODE, 'code'],
  [JudgeKind.VIDEO, 'video'],
  [JudgeKind.HUMAN, 'people'],
] as const

export function Rollouts({ name, session, iteration }: TabProps) {
  const assignments = useAssignments(name, iteration)
  const all = useMemo(() => rolloutsOf(assignments.data ?? []), [assignments.data])
  const [label, setLabel] = useState<string | null>(null)
  const [owner, setOwner] = useState<string | null>(null)
  const [lastOnly, setLastOnly] = useState(true)
  const [page, setPage] = useState(1)
  const [scene, setScene] = useState<string | null>(null)
  const panel = useRef<HTMLDivElement>(null)
  const shown = all.filter((entry) => (!lastOnly || entry.last) && (label === null || entry.rollout.label === label) && (owner === null || entry.owner === owner))
  const withVideo = shown.filter((entry) => entry.rollout.video !== '').map((entry) => entry.rollout.video)
  const best = session.bestVideo.startsWith(`${name}/iterations/${iteration}/`) ? session.bestVideo : ''
  const videos = [...new Set([...withVideo, ...(best === '' ? [] : [best])])].slice(0, 6)
  const recordings = useMemo(() => videos.map((key) => recordingOf(key, all)), [videos.join(), all])
  if (assignments.error !== null) return <Problem error={assignments.error} />
  if (assignments.data !== undefined && all.length === 0 && videos.length === 0) {
    return (
      <Empty icon={<IconMovie size={22} />} title="No rollouts yet">
        Each evaluation records the p10, median and p90 episodes.
      </Empty>
    )
  }
  if (session.method === 'program') return <ProgramRun name={name} iteration={iteration} />
  return (
    <Stack>
      <Box className="media">
        <Box className={scene !== null && videos.length > 1 ? 'whole-row' : undefined!}>
          {videos.length > 0 ? (
            <Synchronised key={videos.join()} videos={videos} recordings={recordings} notes={videos.map((key) => (filmOf(key, all) === undefined ? null : <Verdicts key={key} rollout={filmOf(key, all)!} />))} />
          ) : (
            <Panel title="Videos">
              <Text size="sm" c="dimmed" mb="xs">
                The video of the best policy is rendered when the session delivers it. Below, each rollout can be rendered.
              </Text>
            </Panel>
          )}
        </Box>
        {all.length > 0 && (
          <Box ref={panel} className={scene !== null && videos.length > 1 ? 'whole-row' : undefined!}>
            <Panel title="3D">
              {scene === null ? (
                <Group gap="sm">
                  <Button variant="light" leftSection={<IconCube size={16} />} onClick={() => setScene((shown[0] ?? all[0]!).rollout.artifact)}>
                    Show in 3D
                  </Button>
                  <Text size="sm" c="dimmed" flex={1} miw={200}>
                    Turn around the recorded states, play them slowly, see contact forces, and compare with a ghost.
                  </Text>
                </Group>
              ) : (
                <Suspense fallback={<Skeleton h={320} radius="md" />}>
                  <Scene3D environment={session.spec?.environment ?? ''} entries={all} chosen={scene} onChoose={setScene} />
                </Suspense>
              )}
            </Panel>
          </Box>
        )}
      </Box>
      <Group align="flex-end" gap="sm">
        <Select aria-label="Member" placeholder="all members" clearable data={[...new Set(all.map((entry) => entry.owner))]} value={owner} onChange={setOwner} w={180} />
        <Select aria-label="Label" placeholder="all labels" clearable data={[...new Set(all.map((entry) => entry.rollout.label))]} value={label} onChange={setLabel} w={150} />
        <Switch label="only the last checkpoints" checked={lastOnly} onChange={(event) => setLastOnly(event.currentTarget.checked)} pb={8} />
        <Text size="sm" c="dimmed" pb={8} className="numbers">{`${shown.length} of ${all.length}`}</Text>
      </Group>
      <SimpleGrid cols={{ base: 1, sm: 2, lg: 3 }} spacing="sm">
        {shown.slice((page - 1) * PER_PAGE, page * PER_PAGE).map((entry) => (
          <Card
            key={entry.rollout.artifact + entry.rollout.label}
            entry={entry}
            name={name}
            onScene={() => {
              setScene(entry.rollout.artifact)
              panel.current?.scrollIntoView({ block: 'nearest' })
            }}
          />
        ))}
      </SimpleGrid>
      {shown.length > PER_PAGE && <Pagination total={Math.ceil(shown.length / PER_PAGE)} value={page} onChange={setPage} size="sm" />}
    </Stack>
  )
}

function Card({ entry, name, onScene }: { entry: Recorded; name: string; onScene: () => void }) {
  const { rollout } = entry
  const client = useQueryClient()
  const [open, { toggle }] = useDisclosure(false)
  const film = useMutation({
    mutationFn: () => artifacts.getRolloutVideo({ rollout: rollout.artifact }, { timeoutMs: RENDER_MS }),
    onSuccess: () => client.invalidateQueries({ queryKey: ['session', name, 'assignments'] }),
  })
  return (
    <Panel
      pad="sm"
      title={
        <Text span fw={600} size="sm">
          {`${entry.owner} ${rollout.label}`}
          <Text span c="dimmed" size="xs" className="numbers">{`${entry.step > 0 ? `  at ${compact(entry.step)} steps` : ''}${entry.fresh ? ', fresh seeds' : ''}`}</Text>
        </Text>
      }
      right={
        rollout.judgment !== undefined && (
          <Badge variant="light" color={rollout.judgment.passed ? 'teal' : 'yellow'} className="numbers">
            {rollout.judgment.score.toFixed(2)}
          </Badge>
        )
      }
    >
      <Stack gap={6}>
        <Group gap="lg">
          <Text size="xs" className="numbers">{`return ${short(rollout.return)}`}</Text>
          {rollout.proposedReturn !== 0 && <Text size="xs" className="numbers">{`proposed ${short(rollout.proposedReturn)}`}</Text>}
          <Text size="xs" c="dimmed" className="numbers">{`seed ${rollout.seed}`}</Text>
        </Group>
        <Verdicts rollout={rollout} />
        {rollout.judgment !== undefined && rollout.judgment.diagnosis !== '' && (
          <Text size="xs" c="dimmed" className="plain" lineClamp={open ? undefined! : 2}>
            {rollout.judgment.diagnosis}
          </Text>
        )}
        <Group gap="xs">
          {rollout.artifact.includes('/members/') && (
            <Button size="compact-xs" variant="subtle" onClick={toggle} aria-expanded={open}>
              {open ? 'close' : 'score it yourself'}
            </Button>
          )}
          <Button size="compact-xs" variant="subtle" color="gray" onClick={onScene} leftSection={<IconCube size={13} />} aria-label={`${entry.owner} ${rollout.label} in 3D`}>
            3D
          </Button>
          {film.data === undefined && rollout.artifact.endsWith('.npz') && (
            <Button size="compact-xs" variant="subtle" color="gray" onClick={() => film.mutate()} loading={film.isPending} leftSection={<IconMovie size={13} />} aria-label={`Video of ${entry.owner} ${rollout.label}`}>
              video
            </Button>
          )}
          <Button component="a" size="compact-xs" variant="subtle" color="gray" href={artifactUrl(rollout.artifact, true)} leftSection={<IconDownload size={13} />}>
            trajectory
          </Button>
        </Group>
        {film.error !== null && (
          <Text size="xs" c="red" className="plain" role="alert">
            {errorText(film.error)}
          </Text>
        )}
        {film.data !== undefined && <video src={artifactUrl(film.data.key)} controls muted playsInline preload="metadata" style={{ width: '100%' }} aria-label={`Video of ${entry.owner} ${rollout.label}`} />}
        {open && <Label rollout={rollout.artifact} name={name} onDone={toggle} />}
      </Stack>
    </Panel>
  )
}

/** The verdicts by code, by video and by people. */
function Verdicts({ rollout }: { rollout: Rollout }) {
  const verdicts = rollout.judgment?.verdicts ?? []
  return (
    <Group gap="xs">
      {KINDS.map(([kind, word]) => {
        const verdict = verdicts.find((candidate) => candidate.kind === kind)
        return (
          <Tooltip key={word} label={verdict === undefined ? `no verdict by ${word}` : `${verdict.votes} ${verdict.votes === 1 ? 'vote' : 'votes'}, spread ${verdict.spread.toFixed(2)}. ${verdict.comment}`.slice(0, 300)} multiline maw={320}>
            <Badge size="sm" variant={verdict === undefined ? 'default' : 'light'} color="gray" className="numbers" tt="none" tabIndex={0}>
              {`${word} ${verdict === undefined ? '–' : verdict.score.toFixed(2)}`}
            </Badge>
          </Tooltip>
        )
      })}
    </Group>
  )
}

function Label({ rollout, name, onDone }: { rollout: string; name: string; onDone: () => void }) {
  const client = useQueryClient()
  const [draft, change, drop] = useDraft<{ value: number | string; comment: string }>(`label/${rollout}`)
  const { value, comment } = draft ?? { value: 0.5, comment: '' }
  const send = useMutation({
    mutationFn: () => sessions.labelRollout({ rollout, score: Number(value), comment, requestId: crypto.randomUUID() }),
    onSuccess: async (answer) => {
      drop()
      const rank = answer.agreement?.spearman
      notifications.show({ message: `Recorded. ${answer.agreement?.rollouts ?? 1} labelled rollouts${rank === undefined ? '' : `; rank correlation with the judges ${rank.toFixed(2)}`}.` })
      await client.invalidateQueries({ queryKey: ['session', name] })
      onDone()
    },
    onError: (error) => notifications.show({ color: 'red', title: 'Not recorded', message: errorText(error) }),
  })
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault()
        send.mutate()
      }}
    >
      <Stack gap={6}>
        <NumberInput size="xs" label="Your score, 0 to 1" min={0} max={1} step={0.1} decimalScale={2} value={value} onChange={(next) => change(() => ({ comment, value: next }))} />
        <Textarea size="xs" label="Remarks" value={comment} onChange={(event) => change(() => ({ value, comment: event.target.value }))} autosize maxLength={4000} />
        <Box>
          <Button type="submit" size="compact-xs" loading={send.isPending}>
            Record
          </Button>
        </Box>
      </Stack>
    </form>
  )
}

type Played = { videos: string[]; labels?: string[]; recordings?: string[]; notes?: React.ReactNode[] }

/**
 * Videos that play together: the first one's clock leads, the others follow it.
 *
 * @param recordings the artifacts of the episodes that the videos show, each empty if it is not known.
 * @param notes what stands below each video.
 */
export function Synchronised({ videos, labels = videos.map((key) => key.split('/').slice(-3).join(' ')), recordings = [], notes = [] }: Played) {
  const players = useRef<(HTMLVideoElement | null)[]>([])
  const clock = useMemo(() => new Clock(Number.POSITIVE_INFINITY), [])
  const [playing, setPlaying] = useState(false)
  const [time, setTime] = useState(0)
  const [length, setLength] = useState(0)
  const [speed, setSpeed] = useState('1')
  const [measured, { toggle: toggleMeasured }] = useDisclosure(false)
  useEffect(() => {
    const lead = players.current[0]
    if (lead === null || lead === undefined) return
    let frame = 0
    const follow = () => {
      setTime(lead.currentTime)
      clock.seek(lead.currentTime)
      for (const player of players.current.slice(1)) {
        if (player !== null && Math.abs(player.currentTime - lead.currentTime) > 0.12) player.currentTime = Math.min(lead.currentTime, player.duration || 0)
      }
      frame = requestAnimationFrame(follow)
    }
    if (playing) frame = requestAnimationFrame(follow)
    return () => cancelAnimationFrame(frame)
  }, [playing, clock])
  const seek = useCallback(
    (to: number) => {
      setTime(to)
      clock.seek(to)
      for (const player of players.current) if (player !== null) player.currentTime = Math.min(to, player.duration || to)
    },
    [clock],
  )
  const marker = useMemo<Marker>(() => ({ subscribe: (listener) => clock.subscribe(listener), seek }), [clock, seek])
  const filmed = useMemo(() => labels.map((label, index) => ({ label, recording: recordings[index] ?? '' })), [labels.join('\n'), recordings.join('\n')])
  const toggle = () => {
    for (const player of players.current) {
      if (player === null) continue
      player.playbackRate = Number(speed)
      if (playing) player.pause()
      else void player.play().catch(() => null)
    }
    setPlaying(!playing)
  }
  return (
    <Panel title={videos.length > 1 ? 'Videos, synchronised' : 'Video'}>
      <SimpleGrid cols={{ base: 1, sm: Math.min(2, videos.length), lg: Math.min(3, videos.length) }} maw={videos.length === 1 ? 560 : undefined!}>
        {videos.map((key, index) => (
          <Box key={key}>
            <video
              ref={(element) => {
                players.current[index] = element
              }}
              src={artifactUrl(key)}
              muted
              loop
              playsInline
              preload="metadata"
              aria-label={`Video ${labels[index]}`}
              onLoadedMetadata={(event) => {
                const { duration } = event.currentTarget
                setLength((old) => Math.max(old, duration))
              }}
            />
            <Text size="xs" c="dimmed" className="one-line">
              {labels[index]}
            </Text>
            {notes[index]}
          </Box>
        ))}
      </SimpleGrid>
      <Group mt="sm" gap="xs">
        <ActionIcon variant="default" onClick={() => seek(0)} aria-label="To the start">
          <IconPlayerTrackPrev size={16} />
        </ActionIcon>
        <ActionIcon variant="light" onClick={toggle} aria-label={playing ? 'Pause' : 'Play'}>
          {playing ? <IconPlayerPause size={16} /> : <IconPlayerPlay size={16} />}
        </ActionIcon>
        <Slider flex={1} miw={130} min={0} max={length || 1} step={0.02} value={time} onChange={seek} onKeyDown={pageKeys(seek, time, length)} label={(value) => `${value.toFixed(2)} s`} thumbLabel="Time" />
        <Text size="xs" className="numbers" miw={84} ta="right">{`${time.toFixed(1)} of ${length.toFixed(1)} s`}</Text>
        <Select aria-label="Speed" size="xs" w={80} data={['0.25', '0.5', '1', '2']} value={speed} allowDeselect={false} onChange={(value) => {
          setSpeed(value ?? '1')
          for (const player of players.current) if (player !== null) player.playbackRate = Number(value ?? 1)
        }} />
      </Group>
      {recordings.some((key) => key !== '') && (
        <Stack gap="xs" mt="sm">
          <Switch size="xs" label="measured fields" checked={measured} onChange={toggleMeasured} />
          {measured && (
            <Suspense fallback={<Skeleton h={160} radius="md" />}>
              <Fields filmed={filmed} clock={marker} />
            </Suspense>
          )}
        </Stack>
      )}
    </Panel>
  )
}
