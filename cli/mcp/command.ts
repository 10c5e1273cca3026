import type { Command } from 'commander'
import { addBuying } from './buy/addBuying.ts'
import { addSelling } from './sell/addSelling.ts'

/** `tollkeeper mcp` and `tollkeeper mcp sell`. */
export function addMcpCommand(program: Command): void {
  // `sell` has options of the same names.
  const mcp = program.command('mcp').enablePositionalOptions()
  addBuying(mcp)
  addSelling(mcp)
}
