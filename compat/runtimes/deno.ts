import { buy, createShop, type Variables } from './shop.ts'

declare const Deno: {
  args: string[]
  env: { toObject(): Variables & { PORT: string } }
  serve(
    options: { port: number; hostname: string; onListen: () => void },
    handler: ReturnType<typeof createShop>,
  ): void
}

const env = Deno.env.toObject()
const [url] = Deno.args
const onListen = () => console.log(`selling http://127.0.0.1:${env.PORT}/`)
if (url) console.log(JSON.stringify(await buy(url, env)))
else Deno.serve({ port: Number(env.PORT), hostname: '127.0.0.1', onListen }, createShop(env))
