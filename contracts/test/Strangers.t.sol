// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {LongWindedToken, NoToken, OddToken, ReentrantToken, Twice, YesToken} from "./mocks/Tokens.sol";
import {SettlementTest} from "./support/SettlementTest.sol";

/// @notice Anyone can settle anyone's payments, and can produce misleading events, but nothing worse.
contract StrangersTest is SettlementTest {
    function _data(IBatchSettlement.Payment[] memory payments) private view returns (bytes memory) {
        return abi.encodeCall(settlement.settle, (_batch(), payees, payments, new bytes[](0)));
    }

    function _expectNothingMoved() private view {
        vm.assertEq(usdc.balanceOf(PROVIDER), 1, "the provider's balance");
        vm.assertEq(usdc.balanceOf(PLATFORM), 1, "the platform's balance");
    }

    function test_behavior_anyoneMaySettle() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 2);
        vm.prank(address(0x5747));
        vm.assertEq(_settle(payments), hex"1111", "outcomes");
        vm.assertEq(usdc.balanceOf(PROVIDER), 1 + 2 * 47_500, "the provider's balance");
        vm.assertEq(usdc.balanceOf(address(0x5747)), 0, "the stranger's balance");
    }

    function test_behavior_twoBatchesInOneTransaction() public {
        IBatchSettlement.Payment[] memory first = _goodPayments(0, 2);
        IBatchSettlement.Payment[] memory second = _goodPayments(2, 2);
        second[0] = first[1];
        (bytes memory one, bytes memory two) = new Twice().settle(settlement, _data(first), _data(second));
        vm.assertEq(one, hex"1111", "outcomes of the first");
        vm.assertEq(two, hex"2211", "outcomes of the second");
        vm.assertEq(usdc.balanceOf(PROVIDER), 1 + 3 * 47_500, "the provider's balance");
    }

    /// Two batches may have the same id: it is only a label, and proves nothing.
    function test_behavior_copiedBatchId() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 2);
        IBatchSettlement.Payment[] memory copy = _one(_terms(0));
        vm.prank(address(0x5747));
        vm.assertEq(_settle(copy), hex"11", "outcomes of the copy");
        vm.assertEq(_settle(payments), hex"2211", "outcomes of the original");
        vm.assertEq(usdc.balanceOf(PROVIDER), 1 + 2 * 47_500, "the provider's balance");
    }

    function test_behavior_tokenThatMovesNothing() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.token = address(new YesToken());
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 1);
        vm.expectEmit(true, true, true, true, address(settlement));
        emit IBatchSettlement.BatchSettled(BATCH_ID, address(this), batch.token, 1, 2, 47_500, 2_500, hex"11");
        settlement.settle(batch, payees, payments, new bytes[](0));
        _expectNothingMoved();
        vm.assertEq(_settle(payments), hex"11", "outcomes with the real token, afterwards");
    }

    function test_behavior_tokenThatAlwaysReverts() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.token = address(new NoToken());
        IBatchSettlement.Payment[] memory payments = _one(_terms(0));
        _expectNothingSettled(hex"34");
        settlement.settle(batch, payees, payments, new bytes[](0));
    }

    function test_behavior_longAnswersAreCut() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.token = address(new LongWindedToken());
        IBatchSettlement.Payment[] memory payments = new IBatchSettlement.Payment[](2);
        Terms memory terms = _terms(1);
        terms.amount = 1;
        terms.fee = 1;
        (payments[0], payments[1]) = (_pack(_terms(0)), _pack(terms));
        vm.expectEmit(true, true, true, true, address(settlement));
        emit IBatchSettlement.AuthorizationFailed(
            BATCH_ID, _buyer(0), _terms(0).nonce, 0, bytes.concat(bytes32(type(uint256).max), new bytes(100))
        );
        vm.assertEq(settlement.settle(batch, payees, payments, new bytes[](0)), hex"3411", "outcomes");
    }

    function test_behavior_onlyTheWordOneMeansUsed() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.token = address(new OddToken());
        vm.assertEq(settlement.settle(batch, payees, _one(_terms(0)), new bytes[](0)), hex"11", "outcomes");
    }

    /// A batch inside a batch settles its payments once; the outer batch only logs events.
    function test_behavior_tokenThatReenters() public {
        IBatchSettlement.Payment[] memory payments = _goodPayments(0, 2);
        IBatchSettlement.Batch memory batch = _batch();
        batch.token = address(new ReentrantToken(address(settlement), _data(payments)));
        batch.callGasLimit = 2_000_000;
        bytes memory outcomes = settlement.settle(batch, payees, payments, new bytes[](0));
        // The first call settles everything, so in each later call the inner batch has nothing to settle and reverts.
        vm.assertEq(outcomes, hex"1334", "outcomes of the outer batch");
        vm.assertEq(usdc.balanceOf(PROVIDER), 1 + 2 * 47_500, "the provider's balance");
        vm.assertEq(usdc.balanceOf(PLATFORM), 1 + 2 * 2_500, "the platform's balance");
    }

    function test_behavior_theContractAsToken() public {
        IBatchSettlement.Batch memory batch = _batch();
        batch.token = address(settlement);
        IBatchSettlement.Payment[] memory payments = _one(_terms(0));
        _expectNothingSettled(hex"34");
        settlement.settle(batch, payees, payments, new bytes[](0));
    }

    /// No one can take tokens that were sent to the contract by mistake, or pay with them.
    function test_behavior_tokensSentByMistakeStay() public {
        usdc.mint(address(settlement), 1_000_000);
        Terms memory terms = _terms(0);
        terms.from = address(settlement);
        IBatchSettlement.Payment[] memory payments = _one(terms);
        _expectNothingSettled(hex"34");
        _settle(payments);
        vm.assertEq(usdc.balanceOf(address(settlement)), 1_000_000, "what was sent by mistake");
    }

    function test_behavior_zeroBuyer() public {
        Terms memory terms = _terms(0);
        terms.from = address(0);
        IBatchSettlement.Payment[] memory payments = _one(terms);
        (payments[0].r, payments[0].vs) = (0, bytes32(uint256(1)));
        _expectNothingSettled(hex"34");
        _settle(payments);
    }
}
