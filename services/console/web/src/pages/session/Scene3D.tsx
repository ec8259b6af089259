// Recorded states in 3D: MuJoCo's shapes at the poses of each state, a ghost beside them, and graphs under one clock.
import { ActionIcon, Box, Group, Loader, Select, Slider, Stack, Switch, Text, Tooltip, useComputedColorScheme } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { IconFocusCentered, IconInfoCircle, IconPlayerPause, IconPlayerPlay, IconPlayerSkipBack, IconPlayerSkipForward, IconPlayerTrackPrev } from '@tabler/icons-react'
import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from 'react'

import { pageKeys } from '../../components/basics'
import { compact } from '../../lib/format'
import { Clock, placeAt, stepFrom } from '../../scene/playback'
import { Stage } from '../../scene/stage'
import type { SceneModel } from '../../scene/types'
import type { Recorded } from './data'
import { Graphs } from './Graphs'
import { type Take, useScene } from './useScene'

const SPEEDS = ['0.05', '0.1', '0.25', '0.5', '1', '2']
const KEYS = 'Arrow keys turn the view, plus and minus zoom, Space plays, comma and full stop go from state to state, F follows the robot, Home resets the view.'

const nameOf = ({ owner, step, rollout }: Recorded) => `${owner} ${rollout.label}, seed ${rollout.seed}${step > 0 ? `, ${compact(step)} steps` : ''}`

type Props = { environment: string; entries: Recorded[]; chosen: string; onChoose: (key: string) => void }

export function Scene3D({ environment, entries, chosen, onChoose }: Props) {
  const [ghost, setGhost] = useState<string | null>(null)
  const { model, takes, loading, why, recorded } = useScene(environment, ghost === null || ghost === chosen ? [chosen] : [chosen, ghost])
  const options = entries.map((entry) => ({ value: entry.rollout.artifact, label: nameOf(entry) })).filter(({ value }, index, all) => all.findIndex((other) => other.value === value) === index)
  return (
    <Stack gap="sm">
      <Group gap="sm" grow preventGrowOverflow={false} wrap="wrap">
        <Select label="Rollout" size="xs" data={options} value={chosen} allowDeselect={false} onChange={(value) => value !== null && onChoose(value)} maw={340} miw={200} />
        <Select label="Ghost" placeholder="none" size="xs" clearable data={options.filter(({ value }) => value !== chosen)} value={ghost} onChange={setGhost} maw={340} miw={200} />
      </Group>
      {why !== '' && (
        <Group gap={6} wrap="nowrap" role="status">
          <IconInfoCircle size={16} />
          <Text size="sm" className="plain">{`No 3D: ${why}. The video shows the recorded episodes.`.replace('..', '.')}</Text>
        </Group>
      )}
      {why === '' && (model === null || takes.length === 0) && (
        <Group role="status" gap="xs" py="xl" justify="center">
          <Loader size="sm" />
          <Text size="sm">Loading the model and the recorded states</Text>
        </Group>
      )}
      {recorded !== '' && (
        <Text size="xs" c="dimmed" className="plain" role="status">{`Poses as the server computed them: ${recorded}.`.replace('..', '.')}</Text>
      )}
      {model !== null && takes[0] !== undefined && <Player key={environment} model={model} takes={takes} loading={loading} />}
    </Stack>
  )
}

function Player({ model, takes, loading }: { model: SceneModel; takes: Take[]; loading: boolean }) {
  const dark = useComputedColorScheme('light') === 'dark'
  const { ref: frame, width } = useElementSize()
  const canvas = useRef<HTMLCanvasElement>(null)
  const stage = useRef<Stage | null>(null)
  const lead = takes[0]!
  const length = Math.max(...takes.map((take) => take.episode.times[take.poses.rows - 1] ?? 0))
  const clock = useMemo(() => new Clock(length), [])
  const [failure, setFailure] = useState('')
  const [time, setTime] = useState(0)
  const [playing, setPlaying] = useState(false)
  const [speed, setSpeed] = useState('1')
  const [follows, setFollows] = useState(model.travels)
  const [forces, setForces] = useState(true)
  const [beside, setBeside] = useState(true)
  const recordings = useMemo(() => takes.map((take, index) => ({ label: index === 0 ? 'rollout' : 'ghost', episode: take.episode, rows: take.poses.rows, force: (row: number) => forceAt(take, row) })), [takes])
  const height = Math.round(Math.min(Math.max(width * 0.58, 240), 520))

  useEffect(() => {
    try {
      stage.current = new Stage(canvas.current!, model, lead.poses)
    } catch (error) {
      setFailure(error instanceof Error ? error.message : String(error))
      return
    }
    const lost = (event: Event) => {
      event.preventDefault()
      setFailure('the browser has withdrawn its graphics context; open 3D again')
    }
    const element = canvas.current!
    element.addEventListener('webglcontextlost', lost)
    return () => {
      element.removeEventListener('webglcontextlost', lost)
      stage.current?.close()
      stage.current = null
    }
  }, [model])
  useEffect(() => {
    stage.current?.set(takes.map((take, index) => ({ poses: take.poses, times: take.episode.times, ghost: index > 0, aside: index > 0 && beside ? asideOf(model) : 0 })))
    clock.length = length
    clock.seek(clock.time)
  }, [takes, beside, model])
  useEffect(() => stage.current?.theme(dark), [dark, model])
  useEffect(() => {
    if (width > 0) stage.current?.resize(width, height)
  }, [width, height, model])
  useEffect(() => {
    let shown = 0
    return clock.subscribe((now) => {
      stage.current?.show(now)
      // The slider and the numbers change ten times a second, the picture with every frame.
      if (!clock.playing || performance.now() - shown > 100) {
        shown = performance.now()
        setTime(now)
      }
    })
  }, [clock, model])
  useEffect(() => {
    clock.playing = playing
    clock.speed = Number(speed)
    if (!playing) return
    let last = performance.now()
    let handle = requestAnimationFrame(function tick(now) {
      clock.advance(Math.min(now - last, 250) / 1000)
      last = now
      handle = requestAnimationFrame(tick)
    })
    return () => {
      clock.playing = false
      cancelAnimationFrame(handle)
    }
  }, [clock, playing, speed])

  const follow = (on: boolean) => {
    setFollows(on)
    if (stage.current !== null) stage.current.follows = on
  }
  const step = (direction: 1 | -1) => {
    setPlaying(false)
    clock.playing = false
    clock.seek(stepFrom(lead.episode.times.subarray(0, lead.poses.rows), clock.time, direction))
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const at = stage.current
    const actions: Record<string, () => void> = {
      ArrowLeft: () => at?.orbit(-0.12, 0),
      ArrowRight: () => at?.orbit(0.12, 0),
      ArrowUp: () => at?.orbit(0, 0.08),
      ArrowDown: () => at?.orbit(0, -0.08),
      '+': () => at?.zoom(0.85),
      '=': () => at?.zoom(0.85),
      '-': () => at?.zoom(1.18),
      ' ': () => setPlaying(!playing),
      ',': () => step(-1),
      '.': () => step(1),
      f: () => follow(!follows),
      Home: () => at?.home(),
    }
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key.length === 1 ? event.key.toLowerCase() : event.key]
    if (action === undefined) return
    event.preventDefault()
    action()
  }
  if (failure !== '') return <Text size="sm" role="status">{`No 3D: ${failure}. The video shows the recorded episodes.`}</Text>
  const place = placeAt(lead.episode.times, lead.poses.rows, time)
  const force = forceAt(lead, place.row)
  return (
    <Stack gap="sm">
      <Box ref={frame}>
        <Box
          className="scene"
          h={height}
          tabIndex={0}
          role="application"
          aria-label={`3D view. ${KEYS}`}
          aria-busy={loading}
          onKeyDown={onKeyDown}
          onFocus={() => stage.current?.wheel(true)}
          onBlur={() => stage.current?.wheel(false)}
          onPointerDown={(event) => event.currentTarget.focus()}
        >
          <canvas ref={canvas} aria-hidden="true" />
        </Box>
      </Box>
      <Group gap="xs">
        <ActionIcon variant="default" aria-label="3D to the start" onClick={() => clock.seek(0)}>
          <IconPlayerTrackPrev size={16} />
        </ActionIcon>
        <ActionIcon variant="default" aria-label="Previous state" onClick={() => step(-1)} visibleFrom="xs">
          <IconPlayerSkipBack size={16} />
        </ActionIcon>
        <ActionIcon variant="light" aria-label={playing ? 'Pause 3D' : 'Play 3D'} onClick={() => setPlaying(!playing)}>
          {playing ? <IconPlayerPause size={16} /> : <IconPlayerPlay size={16} />}
        </ActionIcon>
        <ActionIcon variant="default" aria-label="Next state" onClick={() => step(1)} visibleFrom="xs">
          <IconPlayerSkipForward size={16} />
        </ActionIcon>
        <Slider flex={1} miw={130} min={0} max={length || 1} step={0.002} value={time} onChange={(to) => clock.seek(to)} onKeyDown={pageKeys((to) => clock.seek(to), time, length)} label={(value) => `${value.toFixed(2)} s`} thumbLabel="Time in 3D" />
        <Text size="xs" className="numbers" miw={92} ta="right">{`${time.toFixed(2)} of ${length.toFixed(1)} s`}</Text>
        <Select aria-label="Speed of 3D" size="xs" w={82} data={SPEEDS.map((value) => ({ value, label: `${value} ×` }))} value={speed} allowDeselect={false} onChange={(value) => setSpeed(value ?? '1')} />
      </Group>
      <Group gap="md">
        <Switch size="xs" label="follow" checked={follows} onChange={(event) => follow(event.currentTarget.checked)} />
        <Switch
          size="xs"
          label="contact forces"
          checked={forces}
          onChange={(event) => {
            setForces(event.currentTarget.checked)
            if (stage.current !== null) stage.current.forces = event.currentTarget.checked
            clock.seek(clock.time)
          }}
        />
        {takes.length > 1 && <Switch size="xs" label="ghost beside" checked={beside} onChange={(event) => setBeside(event.currentTarget.checked)} />}
        <Tooltip label="Reset the view">
          <ActionIcon variant="subtle" color="gray" aria-label="Reset the view" onClick={() => stage.current?.home()}>
            <IconFocusCentered size={16} />
          </ActionIcon>
        </Tooltip>
        <Text size="xs" c="dimmed" className="numbers">{`state ${place.row} of ${lead.episode.steps}, contact force ${compact(Math.round(force))} N (${(force / model.weight).toFixed(1)} × weight)`}</Text>
      </Group>
      {takes.some((take) => take.cut) && <Text size="xs" c="dimmed">The simulation diverged: the states after the first one that is not finite are left out.</Text>}
      <Graphs recordings={recordings} clock={clock} />
    </Stack>
  )
}

/** How far to the side a ghost stands, in metres. */
function asideOf(model: SceneModel): number {
  const sizes = model.shapes.filter((shape) => shape.kind !== 'plane' && shape.radius < 5).map((shape) => shape.radius)
  return 4 * Math.max(0.1, ...sizes)
}

/** Sum of the sizes of the contact forces in a recorded state, in newtons. */
function forceAt({ poses }: Take, row: number): number {
  let sum = 0
  for (let at = poses.contactStart[row] ?? 0; at < (poses.contactStart[row + 1] ?? 0); at += 1) {
    sum += Math.hypot(poses.contacts[6 * at + 3]!, poses.contacts[6 * at + 4]!, poses.contacts[6 * at + 5]!)
  }
  return sum
}
