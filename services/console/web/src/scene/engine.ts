// MuJoCo's own WebAssembly: shapes of a model, and their poses at recorded states.
//
// It runs in a worker, and in Node for tests. Its objects are not collected as garbage: `delete` frees them.
import type { MainModule, MjData, MjModel } from '@mujoco/mujoco'

import type { Kind, Mesh, Poses, SceneModel, Shape, States, XmlModel } from './types'

const KINDS: (Kind | 'hfield')[] = ['plane', 'hfield', 'sphere', 'capsule', 'ellipsoid', 'cylinder', 'box', 'mesh']
const FREE = 0
const SLIDE = 2
const HINGE = 3
/** Shapes of further groups are collision shapes and the like, which MuJoCo's viewer does not show either. */
const GROUPS = 3
const TEXTURE_ROLES = 10
const RGB_ROLE = 1
const MAX_CONTACTS = 64

export class Engine {
  private readonly module: MainModule
  private readonly model: MjModel
  private readonly data: MjData
  private readonly geoms: number[]
  private readonly sites: number[]
  private readonly root: number

  /** @throws Error with MuJoCo's message if it cannot load the model. */
  constructor(module: MainModule, source: XmlModel) {
    this.module = module
    const files = new module.MjVFS()
    const encoder = new TextEncoder()
    try {
      for (const file of source.files) files.addBuffer(file.path, file.data)
      files.addBuffer(source.path, encoder.encode(source.xml))
      this.model = module.MjModel.from_xml_path(source.path, files)
    } finally {
      files.delete()
    }
    this.data = new module.MjData(this.model)
    const { model } = this
    this.geoms = range(model.ngeom).filter((index) => model.geom_group[index] < GROUPS && this.color('geom', index)[3] > 0 && model.geom_type[index] < KINDS.length)
    this.sites = range(model.nsite).filter((index) => model.site_group[index] < GROUPS && this.color('site', index)[3] > 0 && model.site_type[index] < KINDS.length)
    this.root = model.njnt > 0 ? model.body_rootid[model.jnt_bodyid[0]] : 0
  }

  close(): void {
    this.data.delete()
    this.model.delete()
  }

  describe(): SceneModel {
    const { model } = this
    const meshes: Mesh[] = []
    const places = new Map<string, number>()
    const meshAt = (key: string, make: () => Mesh): number => {
      let place = places.get(key)
      if (place === undefined) {
        place = meshes.push(make()) - 1
        places.set(key, place)
      }
      return place
    }
    const shape = (what: 'geom' | 'site', index: number): Shape => {
      const kind = KINDS[model[`${what}_type`][index]]!
      const [x, y, z] = model[`${what}_size`].subarray(3 * index, 3 * index + 3) as Float64Array
      const id = what === 'geom' ? (model.geom_dataid[index] as number) : -1
      const mesh = kind === 'hfield' ? meshAt(`h${id}`, () => this.heightField(id)) : kind === 'mesh' ? meshAt(`m${id}`, () => this.mesh(id)) : -1
      const radius = what === 'geom' ? (model.geom_rbound[index] as number) : Math.max(x!, y!, z!)
      return { kind: kind === 'hfield' ? 'mesh' : kind, size: [x!, y!, z!], color: this.color(what, index), mesh, radius }
    }
    // The bindings cannot read `jnt_limited`: an unlimited joint has an empty range.
    const joints = range(model.njnt).map((index) => ({ kind: model.jnt_type[index] as number, axis: [...model.jnt_axis.subarray(3 * index, 3 * index + 3)] as number[], limited: model.jnt_range[2 * index] < model.jnt_range[2 * index + 1] }))
    const gravity = Math.hypot(...(model.opt.gravity as Float64Array)) || 9.81
    const mass = range(model.nbody).reduce((sum, index) => sum + (model.body_weldid[index] === 0 ? 0 : (model.body_mass[index] as number)), 0)
    return {
      shapes: [...this.geoms.map((index) => shape('geom', index)), ...this.sites.map((index) => shape('site', index))],
      meshes,
      travels: joints.some(({ kind, axis, limited }) => kind === FREE || (kind === SLIDE && !limited && Math.abs(axis[0]!) > 0.5)),
      flat: joints.length > 0 && joints.every(({ kind, axis }) => (kind === HINGE && Math.abs(axis[2]!) > 0.99) || (kind === SLIDE && Math.abs(axis[2]!) < 0.01)),
      weight: mass * gravity || 1,
      nq: model.nq,
      nv: model.nv,
      nu: model.nu,
    }
  }

  /** Set a state and compute what follows from it, as `mj_forward` of Python does. */
  forward(states: States, row: number): { position: Float64Array; matrix: Float64Array } {
    const { model, data } = this
    this.module.mj_resetData(model, data)
    data.qpos.set(states.qpos.subarray(row * model.nq, (row + 1) * model.nq))
    data.qvel.set(states.qvel.subarray(row * model.nv, (row + 1) * model.nv))
    data.ctrl.set(states.ctrl.subarray(row * model.nu, (row + 1) * model.nu))
    this.module.mj_forward(model, data)
    return { position: data.geom_xpos, matrix: data.geom_xmat }
  }

  /** @throws Error if the states are not of this model. */
  poses(states: States): Poses {
    const { model, data } = this
    if (states.qpos.length !== states.rows * model.nq || states.qvel.length !== states.rows * model.nv || states.ctrl.length !== states.rows * model.nu) {
      throw new Error(`the recorded states are not of this model, which has ${model.nq} positions and ${model.nv} velocities`)
    }
    const shapes = this.geoms.length + this.sites.length
    const position = new Float32Array(states.rows * shapes * 3)
    const rotation = new Float32Array(states.rows * shapes * 4)
    const centre = new Float32Array(states.rows * 3)
    const contactStart = new Uint32Array(states.rows + 1)
    const contacts: number[] = []
    for (let row = 0; row < states.rows; row += 1) {
      this.forward(states, row)
      let at = row * shapes
      for (const [indices, from, turned] of [[this.geoms, data.geom_xpos, data.geom_xmat], [this.sites, data.site_xpos, data.site_xmat]] as const) {
        for (const index of indices) {
          position.set(from.subarray(3 * index, 3 * index + 3), 3 * at)
          rotation.set(quaternion(turned as Float64Array, 9 * index), 4 * at)
          at += 1
        }
      }
      centre.set(data.subtree_com.subarray(3 * this.root, 3 * this.root + 3), 3 * row)
      contacts.push(...this.contacts())
      contactStart[row + 1] = contacts.length / 6
    }
    return { rows: states.rows, position, rotation, centre, contactStart, contacts: Float32Array.from(contacts) }
  }

  /** Points and forces of the contacts of the current state; six numbers each. */
  contacts(): number[] {
    const { model, data, module } = this
    const result: number[] = []
    if (data.ncon === 0) return result
    const all = data.contact
    const force = new module.DoubleBuffer(6)
    try {
      for (let index = 0; index < Math.min(data.ncon, MAX_CONTACTS); index += 1) {
        const contact = all.get(index)
        if (contact === undefined || contact === null) continue
        module.mj_contactForce(model, data, index, force)
        const local = force.GetView() as Float64Array
        // Rows of the frame are the normal, from the first geom to the second, and two tangents; the force acts on the second.
        const moves = contact.geom2 >= 0 && model.body_weldid[model.geom_bodyid[contact.geom2]] !== 0
        const sign = moves ? 1 : -1
        result.push(...(contact.pos as Float64Array))
        for (let axis = 0; axis < 3; axis += 1) result.push(sign * (contact.frame[axis] * local[0]! + contact.frame[3 + axis] * local[1]! + contact.frame[6 + axis] * local[2]!))
        contact.delete()
      }
    } finally {
      force.delete()
      all.delete()
    }
    return result
  }

  /** The colour of a shape: its own, or its material's, times the mean of its texture. */
  private color(what: 'geom' | 'site', index: number): [number, number, number, number] {
    const { model } = this
    const own = [...(model[`${what}_rgba`] as Float32Array).subarray(4 * index, 4 * index + 4)]
    const material = model[`${what}_matid`][index] as number
    if (material < 0) return own as [number, number, number, number]
    const unset = own[0] === 0.5 && own[1] === 0.5 && own[2] === 0.5 && own[3] === 1
    const base = unset ? [...(model.mat_rgba as Float32Array).subarray(4 * material, 4 * material + 4)] : own
    const texture = model.mat_texid[TEXTURE_ROLES * material + RGB_ROLE] as number
    const mean = texture >= 0 ? this.meanOfTexture(texture) : [1, 1, 1]
    return [base[0]! * mean[0]!, base[1]! * mean[1]!, base[2]! * mean[2]!, base[3]!]
  }

  private meanOfTexture(texture: number): number[] {
    const { model } = this
    const channels = model.tex_nchannel[texture] as number
    const pixels = (model.tex_width[texture] as number) * (model.tex_height[texture] as number)
    const start = Number(model.tex_adr[texture])
    if (channels < 3 || pixels === 0) return [1, 1, 1]
    const sum = [0, 0, 0]
    const step = Math.max(1, Math.floor(pixels / 4096))
    let count = 0
    for (let pixel = 0; pixel < pixels; pixel += step, count += 1) {
      for (let channel = 0; channel < 3; channel += 1) sum[channel]! += model.tex_data[start + channels * pixel + channel] as number
    }
    return sum.map((value) => value / (255 * count))
  }

  private mesh(id: number): Mesh {
    const { model } = this
    const vertex = model.mesh_vertadr[id] as number
    const face = model.mesh_faceadr[id] as number
    return {
      vertices: Float32Array.from(model.mesh_vert.subarray(3 * vertex, 3 * (vertex + model.mesh_vertnum[id]))),
      faces: Uint32Array.from(model.mesh_face.subarray(3 * face, 3 * (face + model.mesh_facenum[id]))),
    }
  }

  private heightField(id: number): Mesh {
    const { model } = this
    const rows = model.hfield_nrow[id] as number
    const columns = model.hfield_ncol[id] as number
    const [halfX, halfY, height] = model.hfield_size.subarray(4 * id, 4 * id + 3) as Float64Array
    const start = model.hfield_adr[id] as number
    const vertices = new Float32Array(3 * rows * columns)
    const faces: number[] = []
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const at = row * columns + column
        vertices.set([halfX! * ((2 * column) / (columns - 1) - 1), halfY! * ((2 * row) / (rows - 1) - 1), height! * model.hfield_data[start + at]], 3 * at)
        if (row > 0 && column > 0) faces.push(at - columns - 1, at - columns, at, at - columns - 1, at, at - 1)
      }
    }
    return { vertices, faces: Uint32Array.from(faces) }
  }
}

function range(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index)
}

/** The quaternion (x, y, z, w) of a rotation matrix, row by row, from a place on. */
export function quaternion(matrix: ArrayLike<number>, at = 0): [number, number, number, number] {
  const m = (row: number, column: number) => matrix[at + 3 * row + column]!
  const trace = m(0, 0) + m(1, 1) + m(2, 2)
  if (trace > 0) {
    const s = 2 * Math.sqrt(1 + trace)
    return [(m(2, 1) - m(1, 2)) / s, (m(0, 2) - m(2, 0)) / s, (m(1, 0) - m(0, 1)) / s, s / 4]
  }
  // The largest diagonal element keeps the root away from zero.
  const i = m(1, 1) > m(0, 0) ? (m(2, 2) > m(1, 1) ? 2 : 1) : m(2, 2) > m(0, 0) ? 2 : 0
  const j = (i + 1) % 3
  const k = (i + 2) % 3
  const s = 2 * Math.sqrt(Math.max(1 + m(i, i) - m(j, j) - m(k, k), 1e-12))
  const result: [number, number, number, number] = [0, 0, 0, (m(k, j) - m(j, k)) / s]
  result[i] = s / 4
  result[j] = (m(j, i) + m(i, j)) / s
  result[k] = (m(k, i) + m(i, k)) / s
  return result
}
