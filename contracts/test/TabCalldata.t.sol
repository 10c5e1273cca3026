// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {ContractWallet} from "./mocks/Wallets.sol";
import {CalldataTest} from "./support/CalldataTest.sol";
import {SettlementTest} from "./support/SettlementTest.sol";
import {TabTest} from "./support/TabTest.sol";

contract TabCalldataTest is TabTest, CalldataTest {
    Bill[] private _signed;

    function setUp() public override(TabTest, SettlementTest) {
        super.setUp();
        Bill[] memory bills = new Bill[](COUNT);
        for (uint256 i; i < COUNT; ++i) {
            bills[i] = _bill(i);
            if (i == 1) bills[i].from = address(new ContractWallet(vm.addr(bills[i].key)));
            _fund(bills[i]);
            _signed.push(bills[i]);
        }
        Packed memory packed = _packTabs(bills);
        bytes memory signature = _signature(bills[1]);
        packed.signatures = new bytes[](1);
        packed.signatures[0] = bytes.concat(signature, signature, signature);
        (packed.tabs[1].r, packed.tabs[1].vs) = (0, 0);
        _data = _call(packed);
    }

    /// Checks that each tab moved as it was signed or not at all, that every recipient was paid its part of the tabs
    /// that moved, and that TabReference does the same.
    function _try(bytes memory data) internal override returns (uint256 moved) {
        _compareWithReference(data, false);
        vm.prank(KEEPER);
        (bool success,) = address(tabSettlement).call(data);
        for (uint256 i; i < COUNT; ++i) {
            bool paid = usdc.authorizationState(_signed[i].from, _signed[i].nonce);
            vm.assertEq(usdc.balanceOf(_signed[i].from), paid ? 0 : 50_000, "the payer's remaining balance");
            if (paid) ++moved;
        }
        _checkGood(moved, "for what moved");
        vm.assertEq(success ? 1 : 0, moved == 0 ? 0 : 1, "reverts exactly if nothing moves");
    }

    function _signedCount() internal pure override returns (uint256) {
        return COUNT;
    }
}
