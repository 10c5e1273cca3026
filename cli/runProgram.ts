/** Runs one of our programs in this process, as `node <path>` with these arguments would. */
export async function runProgram(path: string, args: readonly string[] = []): Promise<void> {
  const program = new URL(`../${path}`, import.meta.url)
  process.argv = [process.execPath, program.pathname, ...args]
  await import(program.href)
}
