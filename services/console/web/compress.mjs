// Compresses the built files beforehand, and fails if the first page needs more JavaScript than its budget.
import { readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'

const folder = '../dressage_console/static'
const budget = 350_000
const least = 1024
const large = 2_000_000

function files(path) {
  return readdirSync(path).flatMap((name) => {
    const entry = join(path, name)
    return statSync(entry).isDirectory() ? files(entry) : [entry]
  })
}

const gzipped = new Map()
for (const path of files(folder)) {
  if (!/\.(js|css|svg|json|html|wasm)$/.test(path)) continue
  const body = readFileSync(path)
  const gzip = gzipSync(body, { level: 9 })
  gzipped.set(path.slice(folder.length + 1), gzip.length)
  if (body.length < least || path.endsWith('index.html')) continue
  writeFileSync(`${path}.gz`, gzip)
  writeFileSync(
    `${path}.br`,
    brotliCompressSync(body, {
      params: {
        // The best quality takes half a minute for WebAssembly of 10 MB, to save a tenth.
        [constants.BROTLI_PARAM_QUALITY]: body.length > large ? 9 : 11,
        [constants.BROTLI_PARAM_SIZE_HINT]: body.length,
      },
    }),
  )
}

const page = readFileSync(join(folder, 'index.html'), 'utf8')
const first = [...page.matchAll(/(?:src|href)="\/([^"]+\.js)"/g)].map((match) => match[1])
const total = first.reduce((sum, name) => sum + (gzipped.get(name) ?? 0), 0)
console.log(`initial JavaScript: ${(total / 1000).toFixed(0)} kB compressed, of at most ${budget / 1000} kB`)
if (total > budget) process.exit(1)
