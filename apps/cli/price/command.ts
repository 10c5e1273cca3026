import { matching } from '@tollkeeper/runtime/parsers'
import { type Command, Option } from 'commander'
import { httpUrl, jsonOption, parsedOption, parseValue } from '../terminal/options.ts'
import type { PriceFlags } from './askPrice.ts'

const amount = matching('decimal USDC like 0.01', /^\d{1,12}(\.\d{1,6})?$/)

/** Adds `price <url>`, which prints the price of a request without paying. */
export function addPriceCommand(program: Command): void {
  program
    .command('price')
    .summary('show the price of any x402 URL, and whether `buy` would pay')
    .description(
      `Requests a URL without paying and prints what it costs: total and fee, networks, tab offer, who is paid, whether it uses testnet funds, and whether \`tollkeeper buy\` would pay it. Works with any x402 seller. Needs no wallet. Reads NETWORK and GATEWAY_URL as \`buy\` does.
Exits with 1 if \`buy\` wouldn't pay, with 3 if the URL costs nothing.`,
    )
    .argument('<url>', 'URL to request', (text: string) => parseValue(text, httpUrl))
    .addOption(
      new Option('--method <method>', 'HTTP method')
        .choices(['GET', 'POST', 'PUT', 'PATCH', 'DELETE'])
        .default('GET'),
    )
    .addOption(
      parsedOption('--max <usdc>', 'maximum price in USDC, as in `buy --max`', amount).default('0.10'),
    )
    .addOption(jsonOption())
    .addHelpText('after', '\nExample:\n  $ NETWORK=base tollkeeper price https://api.example/forecast')
    .action(async (url: string, flags: PriceFlags) => {
      const { printPrice } = await import('./askPrice.ts')
      process.exitCode = await printPrice(url, flags)
    })
}
