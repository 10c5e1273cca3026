import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

// Loaded into Ponder's process before Ponder, which writes `ponder-env.d.ts` into its root at each start. Only an editor reads that
// file, and a package that root installed can't be written by whoever runs it.

const { writeFileSync } = fs
fs.writeFileSync = (file, ...rest) => {
  if (!String(file).endsWith('ponder-env.d.ts')) writeFileSync(file, ...rest)
}
syncBuiltinESMExports()
