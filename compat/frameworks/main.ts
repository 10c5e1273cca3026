/** A shop in Nest, with the guards from docs/jest-and-nest.md: `node main.js express` or `fastify`. Prints its URL in a line. */
import 'reflect-metadata'
import { Body, Controller, Get, Module, Post, Req, UseGuards } from '@nestjs/common'
import { NestFactory } from '@nestjs/core'
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify'
import { PaidGuard as ExpressGuard } from './express.guard.ts'
import { PaidGuard as FastifyGuard } from './fastify.guard.ts'

const isFastify = process.argv[2] === 'fastify'
const PaidGuard = isFastify ? FastifyGuard : ExpressGuard
let served = 0

type Paid = { payment: { paymentId: string } }

@Controller()
class ShopController {
  @Get('weather/:city')
  @UseGuards(PaidGuard)
  weather(@Req() { payment }: Paid) {
    served++
    return { celsius: 19, paymentId: payment.paymentId }
  }

  @Post('reports')
  @UseGuards(PaidGuard)
  report(@Req() { payment }: Paid, @Body() body: unknown) {
    return { body, paymentId: payment.paymentId }
  }

  @Get('failing')
  @UseGuards(PaidGuard)
  fail() {
    throw new Error('no weather')
  }

  @Get('served')
  countServed() {
    return { served }
  }
}

@Module({ controllers: [ShopController] })
class ShopModule {}

/** All options with which Fastify's router treats different spellings of a path as equal. */
const routerOptions = {
  caseSensitive: false,
  ignoreTrailingSlash: true,
  ignoreDuplicateSlashes: true,
  useSemicolonDelimiter: true,
}
const options = { logger: false } as const
const app = isFastify
  ? await NestFactory.create<NestFastifyApplication>(
      ShopModule,
      new FastifyAdapter({ routerOptions }),
      options,
    )
  : await NestFactory.create(ShopModule, options)
await app.listen(Number(process.env.PORT), '127.0.0.1')
console.log(`selling ${await app.getUrl()}`)
