import { writeFile } from 'node:fs/promises'
import { generatePayments } from './payments.ts'

// `node test/vectors/generate.ts` writes the vector files anew. A test compares them with what is committed.

export const generators = {
  'payments.json': generatePayments,
}

if (import.meta.main) {
  for (const [file, generate] of Object.entries(generators)) {
    await writeFile(new URL(file, import.meta.url), `${JSON.stringify(await generate(), null, 2)}\n`)
  }
}
