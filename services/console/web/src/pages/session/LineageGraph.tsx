// The lineage as a graph: iterations by score, and which one each came from. A click shows one.
import '@xyflow/react/dist/style.css'

import { Badge, Group, Text, useComputedColorScheme } from '@mantine/core'
import { Background, Controls, type Edge, Handle, type Node, type NodeProps, Position, ReactFlow } from '@xyflow/react'
import { useMemo } from 'react'

import type { LineageNode } from '../../gen/dressage/v1/session_service_pb'
import { lastPart } from '../../lib/format'
import { placesOf } from '../../lib/lineage'

const COLUMN = 190
const ROW = 92
const HEIGHT = { least: 150, most: 420 }

type Drawn = Node<{ number: number; score: string; best: boolean; edited: boolean }, 'iteration'>

function Iteration({ data, selected }: NodeProps<Drawn>) {
  return (
    <div className={selected ? 'lineage-node lineage-chosen' : 'lineage-node'}>
      <Handle type="target" position={Position.Left} isConnectable={false} />
      <Group gap={6} wrap="nowrap">
        <Text size="sm" fw={600}>{`Iteration ${data.number}`}</Text>
        {data.best && <Badge size="xs">best</Badge>}
      </Group>
      <Text size="xs" c="dimmed" className="numbers">
        {data.edited ? `${data.score}, edited` : data.score}
      </Text>
      <Handle type="source" position={Position.Right} isConnectable={false} />
    </div>
  )
}

const KINDS = { iteration: Iteration }

type Props = {
  nodes: LineageNode[]
  shown: number
  scoreOf: (node: LineageNode) => string
  onShow: (iteration: number) => void
}

export function LineageGraph({ nodes, shown, scoreOf, onShow }: Props) {
  const scheme = useComputedColorScheme('light')
  const places = useMemo(() => placesOf(nodes), [nodes])
  const drawn: Drawn[] = nodes.map((node) => {
    const { column, row } = places.get(node.iteration)!
    const number = Number(lastPart(node.iteration))
    return {
      id: node.iteration,
      type: 'iteration',
      position: { x: column * COLUMN, y: row * ROW },
      selected: number === shown,
      ariaLabel: `Iteration ${number}, score ${scoreOf(node)}${node.parent === '' ? '' : `, from iteration ${lastPart(node.parent)}`}`,
      data: { number, score: scoreOf(node), best: node.best, edited: node.edited.length > 0 },
    }
  })
  const edges: Edge[] = nodes.filter((node) => places.has(node.parent)).map((node) => ({ id: `${node.parent}>${node.iteration}`, source: node.parent, target: node.iteration, focusable: false }))
  const rows = 1 + Math.max(...[...places.values()].map((place) => place.row))
  return (
    <div className="lineage-graph" style={{ height: Math.min(HEIGHT.most, Math.max(HEIGHT.least, rows * ROW + 60)) }} role="region" aria-label="Graph of the lineage">
      <ReactFlow
        nodes={drawn}
        edges={edges}
        nodeTypes={KINDS}
        colorMode={scheme}
        fitView
        fitViewOptions={{ maxZoom: 1, padding: 0.15 }}
        minZoom={0.2}
        nodesDraggable={false}
        nodesConnectable={false}
        edgesFocusable={false}
        zoomOnScroll={false}
        preventScrolling={false}
        proOptions={{ hideAttribution: false }}
        onNodeClick={(_, node) => onShow(node.data.number)}
        onKeyDown={(event) => {
          const id = event.target instanceof HTMLElement ? event.target.closest('.react-flow__node')?.getAttribute('data-id') : undefined
          if ((event.key === 'Enter' || event.key === ' ') && id !== undefined && id !== null) onShow(Number(lastPart(id)))
        }}
      >
        <Background gap={24} />
        <Controls showInteractive={false} />
      </ReactFlow>
    </div>
  )
}
