import { randomBytes } from 'node:crypto'
import { readFile, rename, stat, writeFile } from 'node:fs/promises'
import { type Command, Option } from 'commander'
import { CliError } from './cliError.ts'

/** `keys rotate receipt | macaroon`. */
export function addKeysCommand(program: Command): void {
  const rotate = program
    .command('keys')
    .summary("the gateway's own keys")
    .description("The gateway's own keys.")
    .command('rotate')
    .summary('a new key beside the old one')
    .description(
      'Makes a new key. What the old one signed stays valid; the gateway takes the new one at its next start.',
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ tollkeeper keys rotate receipt --file .tollkeeper/receipt-keys.json\n  $ tollkeeper keys rotate macaroon --write .env',
    )

  rotate
    .command('receipt')
    .summary('the key that signs receipts')
    .description(
      'Adds a new signing key to the receipt key file, or makes the file. Old keys lose their private part and stay in\nthe JWKS, so that the receipts they signed verify for ever.',
    )
    .addOption(
      new Option('--file <path>', 'the key file')
        .env('RECEIPT_KEY_FILE')
        .default('.tollkeeper/receipt-keys.json'),
    )
    .addHelpText('after', '\nExample:\n  $ tollkeeper keys rotate receipt')
    .action(async ({ file }: { file: string }) => {
      const { parseReceiptKeys, rotateReceiptKeys, writeReceiptKeys } = await import('#api/receipts/keys')
      const text = await readIfThere(file)
      const rotated = rotateReceiptKeys(text === undefined ? undefined : parseReceiptKeys(text, file))
      await writeReceiptKeys(file, rotated)
      const [current, ...retired] = rotated.keys
      process.stdout.write(`${file}: signs with ${current?.kid}; ${retired.length} retired\n`)
      process.stderr.write('Restart each api process with this file.\n')
    })

  rotate
    .command('macaroon')
    .summary('the secret that mints challenges')
    .description(
      'Puts a new secret in front of MACAROON_SECRETS and keeps the one that minted so far: challenges under way stay\nvalid for their five minutes. Reads the variable, or the file given with --write.',
    )
    .option('--write <path>', 'change the line MACAROON_SECRETS=… of this file, instead of printing it')
    .addHelpText('after', '\nExample:\n  $ tollkeeper keys rotate macaroon --write .env')
    .action(async ({ write }: { write?: string }) => {
      if (write === undefined) {
        process.stdout.write(`MACAROON_SECRETS=${rotateSecrets(process.env.MACAROON_SECRETS)}\n`)
        return
      }
      const text = (await readIfThere(write)) ?? ''
      await replaceFile(write, rotateSecretsIn(text))
      process.stdout.write(`${write}: MACAROON_SECRETS begins with a new secret\n`)
      process.stderr.write(
        'Restart each api process with it: one after the other, each knows both secrets.\n',
      )
    })
}

/** Two at a time: the new one mints, the last one still verifies. */
function rotateSecrets(secrets: string | undefined): string {
  const [last] = (secrets ?? '').split(',').filter((secret) => secret.trim() !== '')
  if (last !== undefined && !/^[\w-]+:[0-9a-fA-F]+$/.test(last.trim())) {
    throw new CliError('invalid_config', 'MACAROON_SECRETS: expected kid:hex, several with commas between')
  }
  const fresh = `m${randomBytes(4).toString('hex')}:${randomBytes(32).toString('hex')}`
  return last === undefined ? fresh : `${fresh},${last.trim()}`
}

function rotateSecretsIn(text: string): string {
  const pattern = /^(\s*(?:export\s+)?MACAROON_SECRETS=)(["']?)([^"'\r\n]*)\2[ \t]*$/m
  const match = pattern.exec(text)
  if (!match) {
    const separator = text === '' || text.endsWith('\n') ? '' : '\n'
    return `${text}${separator}MACAROON_SECRETS=${rotateSecrets(undefined)}\n`
  }
  const [line, start = '', quote = '', value = ''] = match
  return text.replace(line, () => `${start}${quote}${rotateSecrets(value)}${quote}`)
}

/** As a whole or not at all, and with the permissions that it had; new ones are their owner's alone. */
async function replaceFile(path: string, text: string): Promise<void> {
  const mode = await stat(path).then(
    (found) => found.mode,
    () => 0o600,
  )
  const temporary = `${path}.${process.pid}.tmp`
  await writeFile(temporary, text, { mode })
  await rename(temporary, path)
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw new CliError('unreadable_file', `${path} can't be read: ${(error as Error).message}`, error)
  }
}
