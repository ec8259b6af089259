// The recorded episodes of a program, step by step: the grid, and the statement that executes, as Python or as DSL text.
import { ActionIcon, Box, Group, SegmentedControl, Select, Skeleton, Slider, Stack, Text } from '@mantine/core'
import { IconPlayerPause, IconPlayerPlay, IconPlayerSkipBack, IconPlayerSkipForward, IconPlayerTrackPrev } from '@tabler/icons-react'
import { useQuery } from '@tanstack/react-query'
import { type KeyboardEvent, useEffect, useMemo, useState } from 'react'

import { artifactUrl } from '../../api/clients'
import { pageKeys, Panel, Problem } from '../../components/basics'
import { CodeView } from '../../components/CodeView'
import { GridView } from '../../components/GridView'
import { short } from '../../lib/format'
import { describeStep, endingOf, gridAfter, type ProgramEpisode, readProgramEpisode } from '../../lib/programEpisode'
import { rolloutsOf, useAssignments } from './data'

const READ_MS = 60_000
const SPEEDS = ['1', '2', '5', '10', '20']

/** Nothing if the iteration has no recorded episode of a program. */
export function ProgramRun({ name, iteration }: { name: string; iteration: number }) {
  const assignments = useAssignments(name, iteration)
  const recorded = useMemo(() => rolloutsOf(assignments.data ?? []).filter(({ rollout }) => rollout.artifact.endsWith('.json')), [assignments.data])
  const [chosen, setChosen] = useState<string | null>(null)
  const key = recorded.some(({ rollout }) => rollout.artifact === chosen) ? chosen! : (recorded.find(({ rollout }) => rollout.label === 'median') ?? recorded[0])?.rollout.artifact
  const episode = useQuery({
    queryKey: ['program episode', key],
    queryFn: async ({ signal }) => {
      const answer = await fetch(artifactUrl(key!), { signal: AbortSignal.any([signal, AbortSignal.timeout(READ_MS)]) })
      if (!answer.ok) throw new Error(`the episode cannot be read: status ${answer.status}`)
      return readProgramEpisode(await answer.text())
    },
    enabled: key !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  })
  if (key === undefined) return null
  // Several labels may name one episode, which is stored once.
  const labels = new Map<string, string[]>()
  for (const { rollout } of recorded) labels.set(rollout.artifact, [...(labels.get(rollout.artifact) ?? []), rollout.label])
  const options = [...labels].map(([value, of]) => {
    const { rollout } = recorded.find((entry) => entry.rollout.artifact === value)!
    return { value, label: `${of.join(', ')}: state ${rollout.seed}, return ${short(rollout.proposedReturn)}` }
  })
  return (
    <Panel title="Recorded episodes" right={<Select aria-label="Episode" size="xs" w={260} data={options} value={key} allowDeselect={false} onChange={setChosen} />}>
      {episode.error !== null && <Problem error={episode.error} title="The episode cannot be shown" />}
      {episode.data === undefined ? episode.error === null && <Skeleton h={240} radius="md" /> : <Player key={key} episode={episode.data} />}
    </Panel>
  )
}

function Player({ episode }: { episode: ProgramEpisode }) {
  const [done, setDone] = useState(0)
  const [playing, setPlaying] = useState(false)
  const [speed, setSpeed] = useState('5')
  const [text, setText] = useState<'python' | 'dsl'>('python')
  const last = episode.steps.length
  const state = useMemo(() => gridAfter(episode, done), [episode, done])
  const step = episode.steps[done - 1]
  const printed = episode.texts[text]
  const line = step === undefined ? undefined : printed.lines[step.statement]
  useEffect(() => {
    if (!playing) return
    const timer = setInterval(() => setDone((old) => Math.min(old + 1, last)), 1000 / Number(speed))
    return () => clearInterval(timer)
  }, [playing, speed, last])
  useEffect(() => {
    if (done === last) setPlaying(false)
  }, [done, last])
  const go = (to: number) => {
    setPlaying(false)
    setDone(Math.min(Math.max(to, 0), last))
  }
  const play = () => {
    if (!playing && done === last) setDone(0)
    setPlaying(!playing)
  }
  const onKeyDown = (event: KeyboardEvent) => {
    const actions: Record<string, () => void> = { ' ': play, ',': () => go(done - 1), '.': () => go(done + 1), Home: () => go(0), End: () => go(last) }
    const action = event.ctrlKey || event.metaKey || event.altKey ? undefined : actions[event.key]
    if (action === undefined) return
    event.preventDefault()
    action()
  }
  const place = `row ${state.agent.row}, column ${state.agent.column}, facing ${state.agent.heading}${state.agent.note === '' ? '' : `, ${state.agent.note}`}`
  return (
    <Stack gap="sm">
      <Box className="program-run">
        <Box className="grid-frame" tabIndex={0} role="application" aria-label="Grid of the episode. Space plays, comma and full stop go from step to step, Home and End to the start and the end." onKeyDown={onKeyDown}>
          <GridView state={state} columns={episode.grid.columns} label={`Grid of ${episode.grid.rows} by ${episode.grid.columns} cells. The agent is at ${place}.`} />
        </Box>
        <Stack gap={6} miw={0}>
          <SegmentedControl
            size="xs"
            w="fit-content"
            aria-label="Text of the program"
            data={[
              { value: 'python', label: 'Python' },
              { value: 'dsl', label: 'DSL' },
            ]}
            value={text}
            onChange={(value) => setText(value as 'python' | 'dsl')}
          />
          <CodeView code={printed.text} language={text === 'python' ? 'python' : 'text'} label="program with the executing line" maxHeight={420} executing={line === undefined ? undefined : { line, tone: step!.kind === 'action' ? 'action' : step!.result === true ? 'true' : 'false' }} />
        </Stack>
      </Box>
      <Group gap="xs">
        <ActionIcon variant="default" aria-label="To the first step" onClick={() => go(0)}>
          <IconPlayerTrackPrev size={16} />
        </ActionIcon>
        <ActionIcon variant="default" aria-label="Previous step" onClick={() => go(done - 1)}>
          <IconPlayerSkipBack size={16} />
        </ActionIcon>
        <ActionIcon variant="light" aria-label={playing ? 'Pause the episode' : 'Play the episode'} onClick={play}>
          {playing ? <IconPlayerPause size={16} /> : <IconPlayerPlay size={16} />}
        </ActionIcon>
        <ActionIcon variant="default" aria-label="Next step" onClick={() => go(done + 1)}>
          <IconPlayerSkipForward size={16} />
        </ActionIcon>
        <Slider flex={1} miw={130} min={0} max={last || 1} step={1} value={done} onChange={go} onKeyDown={pageKeys((to) => go(Math.round(to)), done, last)} label={null} thumbLabel="Step" />
        <Select aria-label="Steps per second" size="xs" w={96} data={SPEEDS.map((value) => ({ value, label: `${value} /s` }))} value={speed} allowDeselect={false} onChange={(value) => setSpeed(value ?? '5')} />
      </Group>
      <Text size="sm" className="numbers" role="status" aria-live={playing ? 'off' : 'polite'}>
        {`Step ${done} of ${last}${line === undefined ? '' : `, line ${line}`}: ${describeStep(episode, done)}. Return ${short(done === last ? episode.return : state.total)}.${done === last ? ` ${endingOf(episode)}.` : ''}`}
      </Text>
      <Text size="xs" c="dimmed" className="plain">Statements: an action is yellow, a test that holds green, one that does not red. Grid: walls are grey, markers orange with their number if there are several; the arrow is the agent.</Text>
    </Stack>
  )
}
