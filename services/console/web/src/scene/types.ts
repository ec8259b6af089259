// What is drawn: the shapes of a model, and where they are at each recorded state.

export type Kind = 'plane' | 'sphere' | 'capsule' | 'ellipsoid' | 'cylinder' | 'box' | 'mesh'

/** A shape. Sizes are MuJoCo's half sizes in metres; `mesh` is a place in `SceneModel.meshes`, or -1. */
export type Shape = { kind: Kind; size: [number, number, number]; color: [number, number, number, number]; mesh: number; radius: number }

/** Vertices (x, y, z each) and triangles of a mesh or a height field, in the frame of its shape. */
export type Mesh = { vertices: Float32Array; faces: Uint32Array }

export type SceneModel = {
  shapes: Shape[]
  meshes: Mesh[]
  /** Whether the robot can travel, so that a camera should follow it. */
  travels: boolean
  /** Whether everything moves in the horizontal plane, which is seen from above. */
  flat: boolean
  /** Weight of everything that moves, in newtons: the scale of contact forces. */
  weight: number
  nq: number
  nv: number
  nu: number
}

/** Recorded states, a row each: positions, velocities and controls of the simulator. */
export type States = { rows: number; qpos: Float64Array; qvel: Float64Array; ctrl: Float64Array }

/** Poses of all shapes at each state: positions (x, y, z) and rotations (quaternions x, y, z, w), row by row. */
export type Poses = {
  rows: number
  position: Float32Array
  rotation: Float32Array
  /** What a camera follows, (x, y, z) a row: the robot's centre of mass. */
  centre: Float32Array
  /** Contacts of row i are `contactStart[i]` to `contactStart[i + 1]`; six numbers each: point and force on what moves, N. */
  contactStart: Uint32Array
  contacts: Float32Array
}

/** A model in MuJoCo's XML with the files that it includes, by relative path. */
export type XmlModel = { path: string; xml: string; files: { path: string; data: Uint8Array }[] }
