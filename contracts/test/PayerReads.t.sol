// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IPayerState, PayerReads} from "../PayerReads.sol";
import {SettlementTest} from "./support/SettlementTest.sol";

/// @notice What PayerReads returns about payers, on the real USDC.
contract PayerReadsTest is SettlementTest {
    PayerReads private reads;

    function setUp() public override {
        super.setUp();
        reads = new PayerReads();
    }

    function _read(PayerReads.Payer[] memory payers)
        private
        view
        returns (bool isPaused, PayerReads.State[] memory states)
    {
        return reads.read(IPayerState(address(usdc)), payers);
    }

    function _payerOf(Terms memory terms) private pure returns (PayerReads.Payer memory) {
        return PayerReads.Payer(terms.from, terms.nonce, keccak256(abi.encode(terms.nonce)));
    }

    function test_EachPayerInOrder() public {
        Terms memory good = _terms(0);
        Terms memory used = _terms(1);
        Terms memory cancelled = _terms(2);
        _fund(good);
        _fund(used);
        _submit(used, _provider(used));
        _cancel(cancelled, keccak256(abi.encode(cancelled.nonce)));
        usdc.blacklist(cancelled.from);
        PayerReads.Payer[] memory payers = new PayerReads.Payer[](4);
        payers[0] = _payerOf(good);
        payers[1] = _payerOf(used);
        payers[2] = _payerOf(cancelled);
        payers[3] = PayerReads.Payer(address(settlement), 0, 0);

        (bool isPaused, PayerReads.State[] memory states) = _read(payers);

        vm.assertTrue(!isPaused, "paused");
        vm.assertEq(states.length, 4, "states");
        vm.assertEq(abi.encode(states[0]), abi.encode(50_000, false, false, false, false), "good");
        vm.assertEq(abi.encode(states[1]), abi.encode(2_500, false, false, true, false), "used");
        vm.assertEq(abi.encode(states[2]), abi.encode(0, false, true, false, true), "cancelled and blacklisted");
        vm.assertEq(abi.encode(states[3]), abi.encode(0, true, false, false, false), "with code");
    }

    function test_PausedToken() public {
        usdc.pause();
        (bool isPaused, PayerReads.State[] memory states) = _read(new PayerReads.Payer[](0));
        vm.assertTrue(isPaused, "not paused");
        vm.assertEq(states.length, 0, "states");
    }
}
