// Poses that the server's MuJoCo computed and stored: what is drawn where WebAssembly cannot compute them.
import { type Table, unpack } from './episode'
import type { Mesh, Poses, SceneModel, Shape } from './types'

const FORMAT = 'dressage.poses/1'

type Schema = { format: string; shapes: Shape[]; meshes: number; travels: boolean; flat: boolean; weight: number }

/** Read a file that `dressage_renderer.poses` wrote. @throws Error stating what is wrong. */
export function readPoses(bytes: Uint8Array): { model: SceneModel; poses: Poses } {
  const { schema, tables } = unpack<Schema>(bytes)
  if (schema.format !== FORMAT) throw new Error(`the poses have the format ${schema.format}, not ${FORMAT}`)
  const table = (name: string): Table => {
    const found = tables.get(name)
    if (found === undefined) throw new Error(`the poses have no array ${name}`)
    return found
  }
  const meshes = Array.from({ length: schema.meshes }, (_, index): Mesh => ({
    vertices: Float32Array.from(table(`mesh/${index}/vertices`).values),
    faces: Uint32Array.from(table(`mesh/${index}/faces`).values),
  }))
  const position = table('position')
  return {
    // Nothing is computed from such a model: its numbers of positions, velocities and controls are not needed.
    model: { shapes: schema.shapes, meshes, travels: schema.travels, flat: schema.flat, weight: schema.weight, nq: 0, nv: 0, nu: 0 },
    poses: {
      rows: position.shape[0] ?? 0,
      position: Float32Array.from(position.values),
      rotation: Float32Array.from(table('rotation').values),
      centre: Float32Array.from(table('centre').values),
      contactStart: Uint32Array.from(table('contact_start').values),
      contacts: Float32Array.from(table('contacts').values),
    },
  }
}
