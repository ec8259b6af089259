// Draws the shapes of a model by WebGL: a robot, its ghost, the floor, contact forces. MuJoCo's axes: z is up.
import {
  AmbientLight, BoxGeometry, BufferAttribute, BufferGeometry, CapsuleGeometry, Color, ConeGeometry, CylinderGeometry, DataTexture, DirectionalLight,
  Fog, Group, HemisphereLight, InstancedMesh, LinearMipmapLinearFilter, Matrix4, Mesh as Solid, MeshBasicMaterial, MeshStandardMaterial, NearestFilter,
  PCFShadowMap, PerspectiveCamera, PlaneGeometry, Quaternion, RepeatWrapping, Scene, SphereGeometry, SRGBColorSpace, Vector3, WebGLRenderer,
} from 'three'
import { OrbitControls } from 'three/examples/jsm/controls/OrbitControls.js'

import { placeAt } from './playback'
import type { Mesh, Poses, SceneModel, Shape } from './types'

/** One rollout in the scene. */
export type Actor = { poses: Poses; times: Float64Array; ghost: boolean; aside: number }

type Placed = Actor & { group: Group; solids: Solid[] }

const FLOOR = 400
const MAX_ARROWS = 128
const GHOST = '#f08c00'
const ARROW = '#2f9e44'

export class Stage {
  private readonly renderer: WebGLRenderer
  private readonly scene = new Scene()
  private readonly camera = new PerspectiveCamera(45, 1, 0.01, 300)
  private readonly controls: OrbitControls
  private readonly sun = new DirectionalLight('#ffffff', 2.2)
  private readonly floors: Solid[] = []
  private readonly squares: DataTexture
  private readonly shafts: InstancedMesh
  private readonly heads: InstancedMesh
  private readonly reach: number
  private readonly square: number
  private readonly middle = new Vector3()
  private actors: Placed[] = []
  private followed = new Vector3()
  private waiting = 0
  private time = 0
  follows: boolean
  forces = true
  /** How often it has drawn; tests read it. */
  drawn = 0

  /** @throws Error if the browser has no WebGL. */
  constructor(private readonly canvas: HTMLCanvasElement, private readonly model: SceneModel, first: Poses) {
    this.renderer = new WebGLRenderer({ canvas, antialias: true })
    this.renderer.outputColorSpace = SRGBColorSpace
    this.renderer.shadowMap.enabled = true
    this.renderer.shadowMap.type = PCFShadowMap
    this.camera.up.set(0, 0, 1)
    this.controls = new OrbitControls(this.camera, canvas)
    this.controls.enableDamping = false
    this.controls.enableZoom = false
    this.controls.maxDistance = 100
    this.controls.addEventListener('change', () => this.request())
    this.follows = model.travels
    this.reach = this.measure(first)
    this.square = this.reach < 0.4 ? 0.1 : 1
    this.squares = checker(this.square)
    // Forces act inside of feet: arrows are drawn over the robot.
    const arrow = new MeshBasicMaterial({ color: ARROW, depthTest: false, transparent: true, opacity: 0.85 })
    this.shafts = new InstancedMesh(new CylinderGeometry(1, 1, 1, 10).rotateX(Math.PI / 2).translate(0, 0, 0.5), arrow, MAX_ARROWS)
    this.heads = new InstancedMesh(new ConeGeometry(1, 1, 14).rotateX(Math.PI / 2).translate(0, 0, -0.5), arrow, MAX_ARROWS)
    for (const part of [this.shafts, this.heads]) Object.assign(part, { frustumCulled: false, renderOrder: 1 })
    this.sun.castShadow = true
    this.sun.shadow.mapSize.set(1024, 1024)
    const side = this.reach * 2.2
    Object.assign(this.sun.shadow.camera, { left: -side, right: side, top: side, bottom: -side, near: 0.1, far: 8 * this.reach })
    this.sun.shadow.bias = -0.0005
    this.sun.shadow.normalBias = 0.01
    this.scene.add(new HemisphereLight('#ffffff', '#8d99a6', 1.3), new AmbientLight('#ffffff', 0.35), this.sun, this.sun.target, this.shafts, this.heads)
    this.home()
  }

  /** Show these rollouts instead of the earlier ones. */
  set(actors: Actor[]): void {
    for (const old of this.actors) {
      this.scene.remove(old.group)
      for (const solid of old.solids) {
        solid.geometry.dispose()
        ;(solid.material as MeshStandardMaterial).dispose()
      }
    }
    this.floors.length = 0
    this.actors = actors.map((actor) => {
      const group = new Group()
      const solids = this.model.shapes.map((shape, index) => this.solid(shape, actor.ghost, upright(actor.poses, index)))
      for (const solid of solids) if (solid.visible) group.add(solid)
      group.position.y = actor.aside
      this.scene.add(group)
      return { ...actor, group, solids }
    })
    this.show(this.time)
  }

  /** Show the states at a time in seconds, between two recorded ones in proportion. */
  show(time: number): void {
    this.time = time
    for (const actor of this.actors) this.pose(actor, time)
    const lead = this.actors[0]
    if (lead !== undefined) {
      const centre = this.centre(lead, time)
      // Beside the first one even where it is slower: poses are compared, and the graphs show the distances.
      for (const actor of this.actors) {
        if (actor.aside === 0 || !this.model.travels) continue
        const behind = centre.clone().sub(this.centre(actor, time))
        actor.group.position.set(behind.x, behind.y + actor.aside, 0)
      }
      if (this.follows) {
        const moved = centre.clone().sub(this.followed)
        this.camera.position.add(moved)
        this.controls.target.add(moved)
      }
      this.followed.copy(centre)
      this.sun.target.position.copy(this.model.travels ? centre : this.middle)
      this.sun.position.copy(this.sun.target.position).add(new Vector3(-0.9, -1.2, 2.6).multiplyScalar(this.reach))
      for (const floor of this.floors) {
        // The floor has no end: it moves along by whole pairs of squares.
        floor.position.x = 2 * this.square * Math.round(centre.x / (2 * this.square))
        floor.position.y = 2 * this.square * Math.round(centre.y / (2 * this.square))
      }
    }
    this.arrows(time)
    this.request()
  }

  resize(width: number, height: number): void {
    this.renderer.setPixelRatio(Math.min(globalThis.devicePixelRatio, 2))
    this.renderer.setSize(width, height, false)
    this.camera.aspect = width / height
    this.camera.updateProjectionMatrix()
    this.request()
  }

  theme(dark: boolean): void {
    const sky = new Color(dark ? '#20242b' : '#e9eef3')
    this.scene.background = sky
    this.scene.fog = new Fog(sky, 8 * this.reach, 40 * this.reach)
    paint(this.squares, dark)
    this.request()
  }

  /** The first view: from the side, a robot that lies flat from above. */
  home(): void {
    const elevation = ((this.model.flat ? 60 : 16) * Math.PI) / 180
    const distance = this.reach * 3
    const target = this.model.travels && this.actors[0] !== undefined ? this.followed : this.middle
    this.controls.target.copy(target)
    this.camera.position.copy(target).add(new Vector3(distance * 0.35 * Math.cos(elevation), -distance * Math.cos(elevation), distance * Math.sin(elevation)))
    this.controls.update()
    this.request()
  }

  /** Turn around the robot by angles in radians. */
  orbit(right: number, up: number): void {
    const offset = this.camera.position.clone().sub(this.controls.target)
    const distance = offset.length()
    const azimuth = Math.atan2(offset.y, offset.x) + right
    const elevation = Math.min(Math.max(Math.asin(offset.z / distance) + up, -1.5), 1.5)
    offset.set(Math.cos(azimuth) * Math.cos(elevation), Math.sin(azimuth) * Math.cos(elevation), Math.sin(elevation)).multiplyScalar(distance)
    this.camera.position.copy(this.controls.target).add(offset)
    this.controls.update()
    this.request()
  }

  /** Come closer (below 1) or go away (above 1). */
  zoom(factor: number): void {
    const offset = this.camera.position.clone().sub(this.controls.target)
    offset.setLength(Math.min(Math.max(offset.length() * factor, 0.1 * this.reach), 100))
    this.camera.position.copy(this.controls.target).add(offset)
    this.controls.update()
    this.request()
  }

  close(): void {
    cancelAnimationFrame(this.waiting)
    this.set([])
    cancelAnimationFrame(this.waiting)
    this.controls.dispose()
    this.squares.dispose()
    this.renderer.dispose()
  }

  /** Whether the wheel zooms; otherwise it scrolls the page. */
  wheel(zooms: boolean): void {
    this.controls.enableZoom = zooms
  }

  private request(): void {
    if (this.waiting !== 0) return
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0
      this.renderer.render(this.scene, this.camera)
      this.drawn += 1
      this.canvas.dataset.drawn = String(this.drawn)
    })
  }

  /** Half of the extent of all but the floor in the first state, in metres. */
  private measure(poses: Poses): number {
    const low = new Vector3(Infinity, Infinity, Infinity)
    const high = new Vector3(-Infinity, -Infinity, -Infinity)
    for (const [index, shape] of this.model.shapes.entries()) {
      if (shape.kind === 'plane' || shape.radius > 5) continue
      const at = new Vector3().fromArray(poses.position, 3 * index)
      low.min(at.clone().subScalar(shape.radius))
      high.max(at.clone().addScalar(shape.radius))
    }
    if (!Number.isFinite(low.x)) return 1
    this.middle.copy(low).add(high).multiplyScalar(0.5)
    this.followed.fromArray(poses.centre)
    return Math.min(Math.max(high.sub(low).length() / 2, 0.05), 20)
  }

  private pose(actor: Placed, time: number): void {
    const { poses, times, solids } = actor
    const { row, share } = placeAt(times, poses.rows, time)
    const one = new Quaternion()
    const count = solids.length
    for (const [index, solid] of solids.entries()) {
      if (this.floors.includes(solid)) {
        solid.position.z = poses.position[3 * (row * count + index) + 2]!
        continue
      }
      const at = row * count + index
      solid.position.fromArray(poses.position, 3 * at)
      solid.quaternion.fromArray(poses.rotation, 4 * at)
      if (share > 0) {
        const next = at + count
        solid.position.lerp(new Vector3().fromArray(poses.position, 3 * next), share)
        solid.quaternion.slerp(one.fromArray(poses.rotation, 4 * next), share)
      }
    }
  }

  private centre(actor: Placed, time: number): Vector3 {
    const { row, share } = placeAt(actor.times, actor.poses.rows, time)
    const at = new Vector3().fromArray(actor.poses.centre, 3 * row)
    return share > 0 ? at.lerp(new Vector3().fromArray(actor.poses.centre, 3 * row + 3), share) : at
  }

  /** Contact forces of the recorded state at or before a time. An arrow of the robot's size is four times its weight. */
  private arrows(time: number): void {
    let count = 0
    const matrix = new Matrix4()
    const turn = new Quaternion()
    const thick = 0.016 * this.reach
    for (const actor of this.forces ? this.actors : []) {
      const { poses } = actor
      const { row } = placeAt(actor.times, poses.rows, time)
      for (let at = poses.contactStart[row]!; at < poses.contactStart[row + 1]! && count < MAX_ARROWS; at += 1) {
        const force = new Vector3().fromArray(poses.contacts, 6 * at + 3)
        const length = Math.min(force.length() / (2 * this.model.weight), 2) * this.reach
        if (length < 2 * thick) continue
        const from = new Vector3().fromArray(poses.contacts, 6 * at)
        from.add(actor.group.position)
        const direction = force.normalize()
        turn.setFromUnitVectors(new Vector3(0, 0, 1), direction)
        const head = Math.min(5 * thick, 0.5 * length)
        this.shafts.setMatrixAt(count, matrix.compose(from, turn, new Vector3(thick, thick, length - head)))
        this.heads.setMatrixAt(count, matrix.compose(from.clone().addScaledVector(direction, length), turn, new Vector3(2.4 * thick, 2.4 * thick, head)))
        count += 1
      }
    }
    for (const part of [this.shafts, this.heads]) {
      part.count = count
      part.instanceMatrix.needsUpdate = true
    }
  }

  private solid(shape: Shape, ghost: boolean, level: boolean): Solid {
    const [red, green, blue, alpha] = shape.color
    if (shape.kind === 'plane') {
      const floor = new Solid(new PlaneGeometry(FLOOR, FLOOR), new MeshStandardMaterial({ map: this.squares, roughness: 1 }))
      floor.receiveShadow = true
      floor.visible = !ghost
      if (!ghost && level) this.floors.push(floor)
      return floor
    }
    const opacity = ghost ? 0.35 * alpha : alpha
    const material = new MeshStandardMaterial({
      color: ghost ? new Color(GHOST) : new Color().setRGB(red, green, blue, SRGBColorSpace),
      roughness: 0.65,
      transparent: opacity < 1,
      opacity,
      depthWrite: opacity >= 1,
      flatShading: shape.kind === 'mesh',
    })
    const solid = new Solid(geometryOf(shape, this.model.meshes), material)
    solid.castShadow = opacity >= 1
    solid.receiveShadow = opacity >= 1
    return solid
  }
}

function geometryOf(shape: Shape, meshes: Mesh[]): BufferGeometry {
  const [a, b, c] = shape.size
  if (shape.kind === 'sphere') return new SphereGeometry(a, 28, 20)
  if (shape.kind === 'ellipsoid') return new SphereGeometry(1, 28, 20).scale(a, b, c)
  if (shape.kind === 'box') return new BoxGeometry(2 * a, 2 * b, 2 * c)
  // three.js has these along y, MuJoCo along z.
  if (shape.kind === 'capsule') return new CapsuleGeometry(a, 2 * b, 10, 24).rotateX(Math.PI / 2)
  if (shape.kind === 'cylinder') return new CylinderGeometry(a, a, 2 * b, 28).rotateX(Math.PI / 2)
  const geometry = new BufferGeometry()
  const mesh = meshes[shape.mesh]
  if (mesh === undefined) return geometry
  geometry.setAttribute('position', new BufferAttribute(mesh.vertices, 3))
  geometry.setIndex(new BufferAttribute(mesh.faces, 1))
  geometry.computeVertexNormals()
  return geometry
}

/** Whether a shape's z axis points up in the first state. */
function upright(poses: Poses, index: number): boolean {
  return Math.hypot(poses.rotation[4 * index]!, poses.rotation[4 * index + 1]!) < 1e-3
}

/** Squares of one metre, as on the floor of the videos, or of 10 cm around small robots. */
function checker(square: number): DataTexture {
  const texture = new DataTexture(new Uint8Array(16), 2, 2)
  texture.wrapS = RepeatWrapping
  texture.wrapT = RepeatWrapping
  texture.repeat.set(FLOOR / (2 * square), FLOOR / (2 * square))
  texture.magFilter = NearestFilter
  texture.minFilter = LinearMipmapLinearFilter
  texture.generateMipmaps = true
  texture.anisotropy = 8
  texture.colorSpace = SRGBColorSpace
  return texture
}

function paint(texture: DataTexture, dark: boolean): void {
  const [bright, dim] = dark ? [0x3a, 0x2e] : [0xd6, 0xbe]
  const tint = (grey: number) => [grey - 6, grey, grey + 5, 255]
  texture.image.data!.set([bright, dim, dim, bright].flatMap((grey) => tint(grey!)))
  texture.needsUpdate = true
}

export const hasWebGL = (): boolean => {
  try {
    return document.createElement('canvas').getContext('webgl2') !== null
  } catch {
    return false
  }
}
