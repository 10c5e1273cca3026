import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { build } from 'esbuild'
import { expect, test } from 'vitest'

test('the provider client needs no module of Node and no dependency, and adds less than 10 kB to a Worker', async () => {
  const { outputFiles, metafile } = await build({
    entryPoints: [join(import.meta.dirname, 'index.ts')],
    bundle: true,
    minify: true,
    // The bundler fails if the code imports a module that only Node has.
    platform: 'neutral',
    format: 'esm',
    write: false,
    metafile: true,
  })
  const [bundle] = outputFiles
  expect(Object.keys(metafile.inputs).filter((path) => path.includes('node_modules'))).toEqual([])
  expect(gzipSync(bundle?.contents ?? '').length).toBeLessThan(10_000)
})
