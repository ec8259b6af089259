// Curves by uPlot: redrawn in place as points arrive, with a cursor that all charts of a page share.
import { Box, Group, Paper, Text, useComputedColorScheme } from '@mantine/core'
import { useElementSize } from '@mantine/hooks'
import { useEffect, useMemo, useRef, useState } from 'react'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'

import { compact, isolated, short } from '../lib/format'

/** `low` and `high`, if given, are drawn as a band behind the line. */
export type Line = { label: string; x: number[]; y: number[]; color: string; dash?: boolean; dots?: boolean; low?: number[]; high?: number[] }

/** Colours that differ for people with colour blindness too (Okabe and Ito), darker on a light page. */
const LIGHT = ['#0072b2', '#d55e00', '#007a5a', '#aa4499', '#8a6d00', '#5b5ea6', '#b0203c', '#3b7a8f']
const DARK = ['#56b4e9', '#ff9248', '#2fc99a', '#e78ac3', '#e6c229', '#a5a8ff', '#ff7a8a', '#7fd3e6']

/** Distances of marks: 1, 2, 5, 10, … */
const WHOLE_STEPS = Array.from({ length: 30 }, (_, index) => [1, 2, 5][index % 3]! * 10 ** Math.floor(index / 3))

export function useColors(): (index: number) => string {
  const dark = useComputedColorScheme('light') === 'dark'
  return (index) => (dark ? DARK : LIGHT)[index % LIGHT.length]!
}

/** A position on the x axis that moves by itself, such as the time of a player; a click on the chart moves it. */
export type Marker = { subscribe: (listener: (x: number) => void) => () => void; seek: (x: number) => void }

type Props = {
  title: string
  lines: Line[]
  xLabel: string
  height?: number
  goal?: number | undefined
  sync?: string
  marker?: Marker | undefined
  /** Only whole numbers are marked on the x axis, and it need not begin at 0. */
  whole?: boolean
  /** Where the x axis ends at least: charts of one training have the same axis. */
  until?: number
  /** Whether the colours are explained below the chart. */
  legend?: boolean
}

export function Chart({ title, lines, xLabel, height = 210, goal, sync = 'steps', marker, whole = false, until = 0, legend = false }: Props) {
  const { ref, width } = useElementSize()
  const plot = useRef<uPlot | null>(null)
  const target = useRef<HTMLDivElement>(null)
  const marked = useRef<number | null>(null)
  const scheme = useComputedColorScheme('light')
  const shown = lines.filter((line) => line.x.length > 0)
  const banded = shown.filter((line) => line.low !== undefined && line.high !== undefined)
  const shape = shown.map((line) => `${line.label}\u0000${line.color}\u0000${line.dots ?? ''}${line.low !== undefined}`).join('\u0001') + `|${goal ?? ''}`
  const data = useMemo(
    () =>
      shown.length === 0
        ? null
        : onAxis(
            uPlot.join([
              ...shown.map((line) => [line.x, line.y] as uPlot.AlignedData),
              // Bounds come after all lines, so that a line's index stays that of its series.
              ...banded.flatMap((line) => [[line.x, line.low!] as uPlot.AlignedData, [line.x, line.high!] as uPlot.AlignedData]),
            ]),
            whole ? Number.POSITIVE_INFINITY : 0,
            until,
          ),
    // Points are appended in place; the lengths and last values state what is new.
    [shape, shown.map((line) => `${line.x.length}:${line.y[line.y.length - 1]}`).join(), whole, until],
  )
  const near = useNear(target)
  const drawn = near && width > 0 && data !== null
  const narrow = width > 0 && width < 420

  useEffect(() => {
    if (!drawn || target.current === null) return
    const style = getComputedStyle(document.documentElement)
    /** State the values at a position: under the pointer, or else under the marker. */
    const readOut = (chart: uPlot, at: number | null | undefined): void => {
      const box = target.current?.parentElement?.parentElement?.querySelector<HTMLElement>('[data-readout]')
      if (box === null || box === undefined) return
      const values = at == null ? [] : shown.map((line, index) => [line.label, nearest(chart.data[index + 1], at)] as const).filter(([, value]) => value !== null)
      box.textContent =
        at == null || values.length === 0
          ? ''
          : `${compact(chart.data[0][at] ?? 0)}: ${values
              .slice(0, 6)
              .map(([label, value]) => `${shown.length > 1 ? `${isolated(label)} ` : ''}${short(value!)}`)
              .join('  ')}`
    }
    const ink = style.getPropertyValue('--mantine-color-dimmed').trim()
    const grid = scheme === 'dark' ? 'rgba(255,255,255,0.07)' : 'rgba(0,0,0,0.07)'
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: '11px system-ui', size: 30, gap: 4 }
    const options: uPlot.Options = {
      width,
      height,
      legend: { show: false },
      cursor: { sync: { key: sync }, points: { size: 6 }, drag: { x: true, y: false } },
      scales: {
        x: { time: false },
        y: {
          range: (_, low, high) => {
            const [least, most] = goal === undefined ? [low, high] : [Math.min(low, goal), Math.max(high, goal)]
            const pad = (most - least || Math.abs(most) || 1) * 0.08
            return [least - pad, most + pad]
          },
        },
      },
      axes: [
        { ...axis, ...(whole ? { incrs: WHOLE_STEPS } : {}), values: (_, values) => values.map((value) => compact(value)) },
        { ...axis, size: 52, values: (_, values) => values.map((value) => short(value)) },
      ],
      series: [
        {},
        ...shown.map((line) => ({
          label: line.label,
          stroke: line.color,
          width: 1.6,
          spanGaps: true,
          dash: line.dash ? [6, 4] : [],
          points: { show: line.dots === true || line.x.length === 1, size: 5, fill: line.color },
        })),
        ...banded.flatMap(() => [0, 1].map(() => ({ width: 0, spanGaps: true, points: { show: false } }))),
      ],
      bands: banded.map((line, index) => {
        const low = 1 + shown.length + 2 * index
        return { series: [low + 1, low] as [number, number], fill: `${line.color}2e` }
      }),
      hooks: {
        draw: [
          (chart) => {
            if (goal === undefined) return
            const y = chart.valToPos(goal, 'y', true)
            chart.ctx.save()
            chart.ctx.strokeStyle = ink
            chart.ctx.lineWidth = 1
            chart.ctx.setLineDash([4, 4])
            chart.ctx.beginPath()
            chart.ctx.moveTo(chart.bbox.left, y)
            chart.ctx.lineTo(chart.bbox.left + chart.bbox.width, y)
            chart.ctx.stroke()
            chart.ctx.restore()
          },
        ],
        setCursor: [(chart) => readOut(chart, chart.cursor.idx ?? marked.current)],
      },
    }
    const chart = new uPlot(options, data, target.current)
    plot.current = chart
    const unmark = marker === undefined ? undefined : mark(chart, marker, (at) => {
      marked.current = at
      if (chart.cursor.idx == null) readOut(chart, at)
    })
    return () => {
      unmark?.()
      plot.current = null
      chart.destroy()
    }
    // A change of data alone is drawn below, without a new chart.
  }, [drawn, width, height, shape, scheme, sync, xLabel, marker, whole])

  useEffect(() => {
    if (plot.current !== null && data !== null) plot.current.setData(data)
  }, [data])

  const last = shown.map((line) => `${line.label}: ${short(line.y[line.y.length - 1] ?? Number.NaN)}`).join(', ')
  return (
    <Paper withBorder radius="md" p="xs" component="figure" m={0}>
      {/* Two lines where both do not fit in one; the second keeps its place while it is empty. */}
      <Group justify="space-between" gap={4} wrap={narrow ? 'wrap' : 'nowrap'} mih={narrow ? 44 : 20} align="flex-start">
        <Text size="sm" fw={600} component="figcaption" truncate={!narrow} {...(narrow ? { w: '100%' } : {})}>
          {title}
          <Text span size="xs" c="dimmed" fw={400}>{` over ${xLabel}`}</Text>
        </Text>
        <Text size="xs" c="dimmed" truncate data-readout className="numbers" />
      </Group>
      {/* A cursor of before a change of width does not widen the page. */}
      <Box ref={ref} style={{ overflow: 'hidden' }}>
        <Box ref={target} mih={height} role="img" aria-label={`${title} over ${xLabel}. Last values: ${last || 'none'}`} />
      </Box>
      {legend && <Legend lines={lines} />}
    </Paper>
  )
}

/** The data on an axis from `first` to `last`, if it does not reach them: positions without values. */
function onAxis(data: uPlot.AlignedData, first: number, last: number): uPlot.AlignedData {
  const [x] = data
  const before = x.length > 0 && x[0]! > first ? [first] : []
  const after = x.length > 0 && x[x.length - 1]! < last ? [last] : []
  if (before.length + after.length === 0) return data
  const none = (positions: number[]) => positions.map(() => null)
  return data.map((values, index) => (index === 0 ? [...before, ...values, ...after] : [...none(before), ...values, ...none(after)])) as uPlot.AlignedData
}

/** Draw a marker over a chart, without drawing the chart anew. @param onPlace is given the index of the values at the marker. */
function mark(chart: uPlot, marker: Marker, onPlace: (index: number) => void): () => void {
  const line = document.createElement('div')
  line.className = 'chart-marker'
  chart.over.append(line)
  let at = 0
  const place = () => {
    const left = chart.valToPos(at, 'x')
    line.hidden = !(left >= 0 && left <= chart.over.clientWidth)
    line.style.transform = `translateX(${left}px)`
    onPlace(chart.valToIdx(at))
  }
  const stop = marker.subscribe((x) => {
    at = x
    place()
  })
  // Before its first drawing, and after a zoom, the chart has other positions.
  chart.hooks.draw = [...(chart.hooks.draw ?? []), place]
  const pick = (event: MouseEvent) => marker.seek(chart.posToVal(event.offsetX, 'x'))
  chart.over.addEventListener('click', pick)
  return () => {
    stop()
    chart.over.removeEventListener('click', pick)
    line.remove()
  }
}

/** Whether an element is or was near the visible part of the page: a page of many charts draws those that are looked at. */
function useNear(element: React.RefObject<HTMLElement | null>): boolean {
  const [near, setNear] = useState(false)
  useEffect(() => {
    if (element.current === null) return
    const observer = new IntersectionObserver(
      (entries) => {
        if (!entries.some((entry) => entry.isIntersecting)) return
        setNear(true)
        observer.disconnect()
      },
      { rootMargin: '200px' },
    )
    observer.observe(element.current)
    return () => observer.disconnect()
  }, [element])
  return near
}

/** The value at an index, or the last one before it: series of several members have different steps. */
function nearest(values: uPlot.TypedArray | (number | null | undefined)[] | undefined, at: number): number | null {
  for (let index = at; index >= 0 && values !== undefined; index -= 1) {
    const value = values[index]
    if (value !== null && value !== undefined) return value
  }
  return null
}

export function Legend({ lines }: { lines: { label: string; color: string }[] }) {
  return (
    <Group gap="md" wrap="wrap">
      {lines.map((line) => (
        <Group key={line.label} gap={6} wrap="nowrap">
          <Box w={14} h={3} bg={line.color} className="whole" />
          <Text size="xs" className="plain">
            {line.label}
          </Text>
        </Group>
      ))}
    </Group>
  )
}
