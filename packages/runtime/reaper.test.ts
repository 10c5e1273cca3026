import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'

test('behavior: removes the directory of a killed process, even if another process still writes into it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tollkeeper reaper-'))
  const program = `
    import { removeWithUs } from ${JSON.stringify(new URL('./reaper.ts', import.meta.url).href)}
    removeWithUs(${JSON.stringify(folder)})
    setInterval(() => {}, 1_000)
    console.log('ready')`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(child.stdout, 'data')
  child.kill('SIGKILL')
  const end = Date.now() + 1_000
  for (let file = 0; Date.now() < end; file = (file + 1) % 200) {
    try {
      writeFileSync(join(folder, `file-${file}`), '')
    } catch {
      break // The directory is already removed.
    }
    if (file === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  await expect.poll(() => existsSync(folder)).toBe(false)
})
