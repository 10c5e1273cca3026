import { writeFile } from 'node:fs/promises'
import { generateMacaroons } from './macaroons.ts'
import { generatePayloads } from './payloads.ts'
import { generatePayments } from './payments.ts'
import { generateReceipts } from './receipts.ts'
import { generateSplitters } from './splitters.ts'
import { generateTabBatches } from './tabBatches.ts'
import { generateTabRule } from './tabRule.ts'
import { generateTabs } from './tabs.ts'
import { generateTiers } from './tiers.ts'

// `node test/vectors/generate.ts` rewrites the vector files. A test compares them with the committed ones.

export const generators: Record<string, () => unknown> = {
  'macaroons.json': generateMacaroons,
  'payloads.json': generatePayloads,
  'payments.json': generatePayments,
  'receipts.json': generateReceipts,
  'splitters.json': generateSplitters,
  'tabBatches.json': generateTabBatches,
  'tabRule.json': generateTabRule,
  'tabs.json': generateTabs,
  'tiers.json': generateTiers,
}

if (import.meta.main) {
  for (const [file, generate] of Object.entries(generators)) {
    await writeFile(new URL(file, import.meta.url), `${JSON.stringify(await generate(), null, 2)}\n`)
  }
}
